# SPDX-License-Identifier: Apache-2.0
"""Disks that nodes import over iSCSI."""

import contextlib
import shlex

from lab import wait

_IQN = 'iqn.2026-01.org.openstack.lab:bench'


@contextlib.contextmanager
def served(server, path, client):
    """Serve a device as a move does; yields its path on the other node."""
    server.run('set -e; t="tgtadm --lld iscsi --mode"; '
               '$t target --op new --tid 99 -T {0}; '
               '$t logicalunit --op new --tid 99 --lun 1 -b {1} '
               '--bsoflags direct; '
               '$t target --op bind --tid 99 -I ALL'.format(
                   _IQN, shlex.quote(path)))
    try:
        with imported(client, server.ip + ':3260', _IQN, 1) as disk:
            yield disk
    finally:
        server.run('tgtadm --lld iscsi --mode target --op delete --force '
                   '--tid 99')


@contextlib.contextmanager
def imported(client, portal, iqn, lun, chap=None):
    """Import a disk; yields its path.

    :param client: node that imports it
    :param chap: its user and password, if it demands them
    """
    node = 'iscsiadm -m node -T %s -p %s ' % (iqn, portal)
    disk = '/dev/disk/by-path/ip-%s-iscsi-%s-lun-%s' % (portal, iqn, lun)
    settings = zip(('authmethod', 'username', 'password'),
                   ('CHAP', *chap)) if chap else ()
    try:
        client.run(' && '.join((
            node + '-o new', *('%s-o update -n node.session.auth.%s -v %s' % (
                node, *each) for each in settings), node + '--login')))
        wait.until(lambda: client.try_run('test -b ' + disk)[0] == 0,
                   disk + ' on ' + client.name, 20, 0.1)
        yield disk
    finally:
        client.run('%s--logout; %s-o delete' % (node, node))


def volume(client, info):
    """Import a volume, as os-brick does; a context that yields its path.

    :param info: connection_info of its attachment
    """
    return imported(client, info['target_portal'], info['target_iqn'],
                    info['target_lun'], info.get('auth_username') and (
                        info['auth_username'], info['auth_password']))
