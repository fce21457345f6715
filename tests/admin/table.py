# SPDX-License-Identifier: Apache-2.0
"""Print a table of the outcomes of commands per state of the move.

usage: python3 -m tests.admin.table FOLDER
"""

import json
import pathlib
import sys

STATES = ('prepared', 'gate closed', 'hydrating', 'complete')


def _cell(found):
    if found is None:
        return '-'
    if found['wrong'] or found['outcome'] not in ('done', 'refused'):
        return 'FAILED'
    return found['outcome'] + ('*' if found['reset'] else '')


def lines(outcomes):
    """Return the lines of the table.

    :param outcomes: list of the outcomes that test_commands.py has saved
    """
    found = {(each['operation'], each['row'], each['state']): each
             for each in outcomes}
    rows = list(dict.fromkeys((operation, row)
                              for operation, row, state in found))
    width = max((len(operation) for operation, row in rows), default=0)
    yield ' | '.join([' ' * width, ' ', *(
        state.ljust(11) for state in STATES)])
    for operation, row in rows:
        yield ' | '.join([operation.ljust(width), row, *(
            _cell(found.get((operation, row, state))).ljust(11)
            for state in STATES)])
    yield ('%d cells; V: the volume, P: its placeholder; *: after a reset of '
           'the state of the row, since the API had refused it' % len(found))


def main():
    folder = pathlib.Path(sys.argv[1])
    print('\n'.join(lines([
        each for path in sorted(folder.glob('*.json'))
        for each in json.loads(path.read_text())])))


if __name__ == '__main__':
    main()
