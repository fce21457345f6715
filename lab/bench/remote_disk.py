# SPDX-License-Identifier: Apache-2.0
"""A disk of one node that another node imports, as a move's source."""

import contextlib
import shlex

from lab import wait

_IQN = 'iqn.2026-01.org.openstack.lab:bench'


@contextlib.contextmanager
def served(server, path, client):
    """Serve a device over iSCSI; yields its path on the other node."""
    portal = server.ip + ':3260'
    node = 'iscsiadm -m node -T %s -p %s ' % (_IQN, portal)
    server.run('set -e; t="tgtadm --lld iscsi --mode"; '
               '$t target --op new --tid 99 -T {0}; '
               '$t logicalunit --op new --tid 99 --lun 1 -b {1}; '
               '$t target --op bind --tid 99 -I ALL'.format(
                   _IQN, shlex.quote(path)))
    try:
        client.run('%s -o new && %s --login' % (node, node))
        try:
            disk = ('/dev/disk/by-path/ip-%s-iscsi-%s-lun-1'
                    % (portal, _IQN))
            wait.until(lambda: client.try_run('test -b ' + disk)[0] == 0,
                       disk + ' on ' + client.name, 20)
            yield disk
        finally:
            client.run('%s --logout; %s -o delete' % (node, node))
    finally:
        server.run('tgtadm --lld iscsi --mode target --op delete --force '
                   '--tid 99')
