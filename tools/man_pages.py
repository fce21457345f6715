#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the man pages of the commands, from doc/source/cli.

Needs docutils. The build of the package calls it (setup.py). The first
paragraph of a page becomes the line of the section "Name".
"""

import pathlib
import re
import shutil
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
PAGES = TOP / 'doc/source/cli'
#: The title between its two lines, and the paragraph after it.
_HEAD = re.compile(r'(=+)\n(\S+)\n\1\n\n((?:.+\n)+)')
_FIELDS = [':Manual section: 8', ':Manual group: dmclone_driver', '']


def source_of(text):
    """Return a page in the form that the man page writer expects."""
    head = _HEAD.match(text)
    line, name, summary = head.groups()
    summary = ' '.join(summary.split()).rstrip('.')
    summary = summary[0].lower() + summary[1:]
    under = '-' * len(summary)
    return '\n'.join([line, name, line, '', under, summary, under, '',
                      *_FIELDS, text[head.end():]])


def write(folder):
    """Write all man pages into a folder, and nothing else."""
    from docutils import core
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in sorted(PAGES.glob('dmclone*.rst')):
        (folder / (page.stem + '.8')).write_bytes(core.publish_string(
            source_of(page.read_text()), str(page), writer_name='manpage',
            settings_overrides={'report_level': 2, 'halt_level': 2}))


if __name__ == '__main__':
    if len(sys.argv) != 2:
        sys.exit('usage: tools/man_pages.py FOLDER')
    write(pathlib.Path(sys.argv[1]))
