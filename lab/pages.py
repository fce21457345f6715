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
_BLOCK = re.compile(r'^\.\. code-block:: bash\n   :caption: (.+)\n\n'
                    r'((?:(?:   .*)?\n)+)', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    where: str
    script: str


def blocks(name):
    """Return the blocks of a page, in their order.

    :param name: e.g. ``admin/quickstart``
    """
    text = (_PAGES / (name + '.rst')).read_text()
    return [Block(where, textwrap.dedent(script).strip() + '\n')
            for where, script in _BLOCK.findall(text)]
