# SPDX-License-Identifier: Apache-2.0
"""Commands of a page of the documentation, to be checked or run.

A block is marked by its directive and its caption, which says where it is
run::

    .. code-block:: bash
       :caption: each node

       apt-get update

It may be followed by an example of what it prints, which comes from the
laboratory (lab/page_outputs.py).
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
_EXAMPLE = re.compile(r'\n(?P<indent> *)\.\. code-block:: text\n'
                      r' *:caption: example\n\n'
                      r'(?:(?:(?P=indent)   .*)?\n)+')


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


def set_outputs(name, outputs):
    """Replace the examples on a page.

    :param outputs: {(section, number of the block in it): text}; a block
        without one, or with an empty one, gets no example
    """
    path = _PAGES / (name + '.rst')
    path.write_text(_with_outputs(path.read_text(), outputs))


def _with_outputs(text, outputs):
    """Return the text of a page with these examples, and no others."""
    section, number = None, 0

    def replaced(part):
        nonlocal section, number
        if part['title']:
            section, number = part['title'], 0
            return part[0]
        output = outputs.get((section, number))
        number += 1
        if not output:
            return part[0]
        return '%s\n\n%s\n\n' % (part[0].rstrip('\n'), textwrap.indent(
            '.. code-block:: text\n   :caption: example\n\n' +
            textwrap.indent(output, '   '), part['indent']))
    whole = _PART.sub(replaced, _EXAMPLE.sub('\n', text))
    return whole.rstrip('\n') + '\n'
