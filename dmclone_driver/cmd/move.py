# SPDX-License-Identifier: Apache-2.0
"""dmclone-move: move a volume that is not attached to another node."""

import sys

from cinder import context as cinder_context
from oslo_config import cfg

from dmclone_driver.cmd import program
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import plan
from dmclone_driver.move import records
from dmclone_driver.move import rpcapi

CONF = cfg.CONF

OPTIONS = [
    cfg.StrOpt('volume', positional=True, required=True,
               help='Id of the volume. It may have snapshots, which stay '
                    'where they are.'),
    cfg.StrOpt('node', positional=True, required=True,
               help='Name of the node to move it to: the part before the @ in '
                    '"openstack volume service list".'),
]


def _move(context: cinder_context.RequestContext) -> int:
    volume = records.get(context, CONF.volume)
    if volume is None or not volume.host:
        raise plan.Refused(_('There is no volume %s on any node.')
                           % CONF.volume)
    home = records.backend_of(volume)
    try:
        answer = rpcapi.PeerClient().move(context, home, volume.id, CONF.node)
    except exception.PeerUnreachable as error:
        raise plan.Refused(_(
            '%s. If the service runs, the move may still succeed: see the '
            'host in "openstack volume show".') % error.msg)
    print(_('volume %(volume)s is on %(host)s now, and hydrates there') % {
        'volume': volume.id, 'host': answer['host']})
    for line in answer['left_behind']:
        print(_('left behind on %(host)s: %(line)s') % {'host': home,
                                                        'line': line})
    return 0


def main(arguments: list[str] | None = None) -> int | str:
    """Print where the volume is, and what it has left behind."""
    return program.run_without_backend(OPTIONS, _move, arguments)


if __name__ == '__main__':
    sys.exit(main())
