# SPDX-License-Identifier: Apache-2.0
"""Checks of the iSCSI target: its address, and who owns its port."""

import collections.abc
import dataclasses
import ipaddress
import socket
import struct

from cinder.volume import configuration as cinder_configuration

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

NAME = 'target port'
TABLES = {'/proc/net/tcp': socket.AF_INET, '/proc/net/tcp6': socket.AF_INET6}
# The portals of LIO: <IQN>/tpgt_1/np/<address>:<port>.
PORTALS = '/sys/kernel/config/target/iscsi/*/tpgt_*/np/*:%d'
#: The program that listens, for each target_helper.
PROGRAMS = {'tgtadm': 'tgtd', 'lioadm': 'LIO'}

# The state of a socket that listens (TCP_LISTEN in include/net/tcp_states.h).
_LISTENS = '0A'


@dataclasses.dataclass(frozen=True)
class Listener:
    """A socket that listens."""

    address: str
    port: int
    inode: int

    def serves(self, address: str, port: int) -> bool:
        """Whether a connection to an address gets to it."""
        mine = ipaddress.ip_address(self.address)
        # A socket of IPv6 that is bound to an address of IPv4.
        mine = getattr(mine, 'ipv4_mapped', None) or mine
        wanted = ipaddress.ip_address(address)
        # A socket on :: takes connections of IPv4, too, by default.
        return self.port == port and (
            mine == wanted or mine.is_unspecified and
            mine.version >= wanted.version)


def listeners(text: str, family: int) -> list[Listener]:
    """Return the sockets in /proc/net/tcp, or tcp6, that listen.

    :param text: e.g. ``0: 0B004D0A:0CBC 00000000:0000 0A
        00000000:00000000 00:00000000 00000000     0        0 4711 1 ...``
    """
    found = []
    for line in text.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 10 or columns[3] != _LISTENS:
            continue
        address, port = columns[1].split(':')
        found.append(Listener(_address(address, family), int(port, 16),
                              int(columns[9])))
    return found


def _address(text: str, family: int) -> str:
    """Return an address that the kernel prints as words of the machine."""
    words = [int(text[at:at + 8], 16) for at in range(0, len(text), 8)]
    return socket.inet_ntop(family, struct.pack('=%dI' % len(words), *words))


def check(configuration: cinder_configuration.Configuration,
          host: Host) -> collections.abc.Iterator[Result]:
    """Yield the results of the address and of the port."""
    address = configuration.target_ip_address
    section = configuration.config_group
    wrong = _fault_of_address(address, host)
    if wrong:
        yield result.failed(
            'target address', wrong,
            _('set target_ip_address to an address of this node in the '
              'network between the nodes'), section)
        yield result.not_applicable(
            NAME, _('there is no address to look at'), section)
        return
    yield result.ok('target address', address, section)
    if configuration.target_helper not in PROGRAMS:
        yield result.not_applicable(
            NAME, _('there is no such target_helper'), section)
    else:
        yield _check_port(host, configuration.target_helper, address,
                          configuration.target_port, section)


def _fault_of_address(address: str, host: Host) -> str | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return _('target_ip_address = %s is no address') % address
    if parsed.is_loopback or parsed.is_unspecified:
        return _('other nodes cannot reach target_ip_address = %s') % address
    if not host.has_address(address):
        return _('target_ip_address = %s is not on this node') % address
    return None


def _check_port(host: Host, helper: str, address: str, port: int,
                section: str) -> Result:
    where = '%s port %d' % (address, port)
    found = [each for path, family in TABLES.items()
             for each in listeners(host.read(path) or '', family)
             if each.serves(address, port)]
    if not found:
        if helper == 'lioadm':
            return result.ok(NAME, _(
                '%s is free; LIO opens it with the first source') % where,
                section)
        return result.failed(
            NAME, _('nobody listens at %s') % where,
            _('start tgtd, with that address as a portal'), section)
    owner = host.owner_of(found[0].inode)
    if owner is None and host.find(PORTALS % port):
        owner = (0, 'LIO')
    if owner is None:
        return result.unknown(
            NAME, _('it is not visible which program listens at %s') % where,
            _('run this command as root, on the host itself'), section)
    wanted = PROGRAMS[helper]
    if owner[1] != wanted:
        return result.failed(
            NAME, _('%(owner)s listens at %(where)s, where %(wanted)s has to '
                    'serve sources') % {
                        'owner': 'LIO' if owner[1] == 'LIO' else
                        _('process %(id)d (%(name)s)') % {
                            'id': owner[0], 'name': owner[1]},
                        'where': where, 'wanted': wanted},
            _('stop it, or give it another port; enable only one iSCSI '
              'target on a node'), section)
    return result.ok(NAME, _('%(owner)s listens at %(where)s') % {
        'owner': owner[1], 'where': where}, section)
