# SPDX-License-Identifier: Apache-2.0
"""Commands of a page of the documentation, to be checked or run.

A block is marked by its directive and its caption, which says where it is
run::

    .. code-block:: bash
       :caption: each node

       apt-get update
"""

import dataclasses
import pathlib
import re
import textwrap

_PAGES = pathlib.Path(__file__).parents[1] / 'doc/source'
_PART = re.compile(r'^(?P<title>\S.*)\n=+\n'
                   r'|^(?P<indent> *)\.\. code-block:: bash\n'
                   r' *:caption: (?P<where>.+)\n\n'
                   r'(?P<script>(?:(?:(?P=indent)   .*)?\n)+)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    section: str
    where: str
    script: str


def blocks(name):
    """Return the blocks of a page, in their order.

    :param name: e.g. ``admin/quickstart``
    """
    found, section = [], None
    for part in _PART.finditer((_PAGES / (name + '.rst')).read_text()):
        if part['title']:
            section = part['title']
        else:
            found.append(Block(section, part['where'], textwrap.dedent(
                part['script']).strip() + '\n'))
    return found
