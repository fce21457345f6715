# SPDX-License-Identifier: Apache-2.0
"""Print the matrix of steps and faults, with seconds to converge.

usage: python3 -m tests.crash.table FOLDER
"""

import json
import pathlib
import sys

#: The end of a file's name if it has the results of copies.
COPIES = ', copies'


def read(folder):
    """Return {cut: {case: [seconds or False, whether by hand]}}."""
    times = {}
    for path in sorted(folder.glob('*.json')):
        times.setdefault(path.stem.removesuffix(COPIES), {}).update(
            json.loads(path.read_text()))
    return times


def _cell(found):
    if found is None:
        return '-'
    seconds, by_hand = found
    return 'FAILED' if seconds is False else '%d%s' % (
        seconds, '*' if by_hand else '')


def lines(times):
    """Return the lines of the table.

    :param times: {cut: {case: [seconds or False, whether by hand]}}
    """
    names = list(dict.fromkeys(name for by_case in times.values()
                               for name in by_case))
    width = max(map(len, names), default=0)
    yield ' | '.join([' ' * width, *times])
    for name in names:
        yield ' | '.join([name.ljust(width)] + [
            _cell(by_case.get(name)).rjust(len(cut))
            for cut, by_case in times.items()])
    yield ('%d cells; seconds from the fault until the volume had converged; '
           '*: an operator reset the state that Cinder had left' % sum(
               map(len, times.values())))


def main():
    times = read(pathlib.Path(sys.argv[1]))
    print('\n'.join(lines(times)))


if __name__ == '__main__':
    main()
