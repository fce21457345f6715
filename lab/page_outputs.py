# SPDX-License-Identifier: Apache-2.0
"""Write what the laboratory has printed into pages of the documentation.

``tools/page-outputs FOLDER`` calls it, with the folder of the outputs that a
run of the set ``day`` has named.
"""

import argparse
import json
import pathlib
import sys
import textwrap

from lab import pages

#: The longest line in a page, without its indent. Tables have longer ones.
WIDTH = 76


def folded(text):
    """Return an output with lines that fit, except for tables."""
    lines = []
    for line in text.expandtabs().splitlines():
        if len(line) <= WIDTH or line[0] in '+|':
            lines.append(line.rstrip())
        else:
            indent = ' ' * (len(line) - len(line.lstrip()) + 2)
            lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent,
                                   break_long_words=False,
                                   break_on_hyphens=False)
    return '\n'.join(lines).strip('\n')


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog='tools/page-outputs',
        description='Write what the commands of pages have printed in the '
        'laboratory into these pages, as examples.')
    parser.add_argument('folder', type=pathlib.Path,
                        help='named at the end of `tools/test day`')
    found = sorted(parser.parse_args(arguments).folder.glob('*.json'))
    if not found:
        return 'there are no outputs'
    for path in found:
        kept = json.loads(path.read_text())
        pages.set_outputs(kept['page'], {
            (each['section'], each['number']): folded(each['text'])
            for each in kept['outputs']})
        print('written: ' + kept['page'])
    return 0


if __name__ == '__main__':
    sys.exit(main())
