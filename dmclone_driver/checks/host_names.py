# SPDX-License-Identifier: Apache-2.0
"""Checks of the names by which Nova and Cinder know a node."""

import collections.abc

from oslo_config import cfg

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

CONF = cfg.CONF
CONF.import_opt('my_ip', 'cinder.common.config')

NOVA = ('/etc/nova/nova.conf', '/etc/nova/nova-compute.conf')
_OPTIONS = [cfg.StrOpt(name) for name in ('host', 'my_ip',
                                          'my_block_storage_ip')]


def check_nova(node: str, host: Host) -> Result:
    """Check that Nova's name of this node leads to this backend.

    A connector contains it, and the address my_block_storage_ip. See
    Peers.find.

    :param node: Cinder's name of it
    """
    name = "Nova's host"
    if not any(host.exists(path) for path in NOVA):
        return result.not_applicable(name, _('there is no %s here') % NOVA[0])
    try:
        options = host.options(_OPTIONS, *NOVA)
    except (OSError, cfg.Error) as error:
        return result.unknown(name, _('%(path)s cannot be read: %(error)s') % {
            'path': NOVA[0], 'error': error}, _('run this command as root'))
    theirs = options.host or host.name()
    if theirs == node:
        return result.ok(name, node)
    address = options.my_block_storage_ip or options.my_ip or CONF.my_ip
    if address in host.addresses(node):
        return result.ok(name, _(
            "%(theirs)s, found as Cinder's %(node)s by its address "
            '%(address)s') % {'theirs': theirs, 'node': node,
                              'address': address})
    return result.failed(
        name, _('Nova calls this node %(theirs)s, and Cinder calls it '
                '%(node)s, which does not resolve to %(address)s: no volume '
                'moves to it') % {'theirs': theirs, 'node': node,
                                  'address': address},
        _('set host in [DEFAULT] of cinder.conf to the name in nova.conf, '
          'before the first volume is created'))


def check_names(nodes: collections.abc.Iterable[str], host: Host) -> Result:
    """Check that the names of this node and of its peers resolve."""
    wrong = [node for node in nodes if not host.addresses(node)]
    if wrong:
        return result.failed(
            'host names', _('this node cannot resolve %s') % ', '.join(wrong),
            _('add the names to DNS or to /etc/hosts'))
    return result.ok('host names', _('%s resolve') % ', '.join(nodes))
