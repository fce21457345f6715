# SPDX-License-Identifier: Apache-2.0
"""What a page about a deployment tool names, compared with its sources."""

import pathlib
import re
import textwrap
import typing

import yaml

PAGES = pathlib.Path(__file__).parents[2] / 'doc/source/admin'
#: {page: the checkouts that it is about}
SOURCES = {
    'kolla-ansible': ('kolla', 'kolla-ansible'),
    'openstack-ansible': ('openstack-ansible', 'openstack-ansible-os_cinder',
                          'openstack-ansible-os_nova')}
#: Keys that have another owner: Cinder's options, and names of the example.
OTHERS = ('DEFAULT', 'compute1', 'dmclone', 'target_ip_address',
          'volume_backend_name', 'volume_driver', 'volume_group',
          'volume_service_inithost_offload')

_BLOCK = re.compile(r'^\.\. code-block:: (\w+)\n\n((?:(?:   .*)?\n)+)',
                    re.MULTILINE)
_FILE = re.compile(
    r'``((?:ansible|doc|kolla|inventory|tasks|templates|vars|defaults)/'
    r'[\w./-]+\.\w+)``')
_TEXT = ('.yml', '.yaml', '.j2', '.py', '.rst', '.conf', '')


def text_of(page: str) -> str:
    return (PAGES / (page + '.rst')).read_text()


def blocks(text: str, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return [textwrap.dedent(content).strip() + '\n'
            for name, content in _BLOCK.findall(text) if name == language]


def files(text: str) -> set[str]:
    """Return the files of the other projects that a page names."""
    return set(_FILE.findall(text))


def _keys(value: typing.Any) -> typing.Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


def variables(text: str) -> set[str]:
    """Return the variables and template blocks of others in the examples."""
    found = {key for block in blocks(text, 'yaml')
             for key in _keys(yaml.safe_load(block))}
    for block in blocks(text, 'jinja'):
        found.update(re.findall(r'{% block (\w+) %}', block))
    for block in blocks(text, 'yaml') + [text]:
        found.update(re.findall(r'{{ (\w+) }}', block))
    return found - set(OTHERS)


def missing(page: str, checkouts: typing.Sequence[pathlib.Path]) -> list[str]:
    """Return what a page names and its sources do not have.

    :param checkouts: of the projects in SOURCES
    """
    text = text_of(page)
    lost = sorted(name for name in files(text)
                  if not any((each / name).is_file() for each in checkouts))
    wanted = variables(text)
    for checkout in checkouts:
        for path in checkout.rglob('*'):
            if wanted and path.suffix in _TEXT and path.is_file() and (
                    '.git' not in path.parts):
                content = path.read_text(errors='replace')
                wanted = {name for name in wanted if not re.search(
                    r'\b%s\b' % re.escape(name), content)}
    return lost + sorted(wanted)
