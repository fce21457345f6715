# SPDX-License-Identifier: Apache-2.0
"""The namespace of the laboratory: two bridges, and two taps per node.

Bridge `lab` carries all traffic that tests can cut; bridge `mgmt` carries ssh
only, so that a node whose network is cut remains accessible.
"""

import os
import pathlib

from lab import command
from lab import errors

NAMESPACE = os.environ.get('DMCLONE_LAB_NAMESPACE') or 'dmclone-lab'
CONTROL = '10.77.0.1'
_ETC = pathlib.Path('/etc/netns') / NAMESPACE
_BRIDGES = {'lab': CONTROL + '/24', 'mgmt': '10.77.1.1/24'}


def node_ip(number):
    return '10.77.0.%d' % (10 + number)


def node_mgmt_ip(number):
    return '10.77.1.%d' % (10 + number)


def mac(number, bridge):
    return '52:54:00:77:%02d:%02d' % (list(_BRIDGES).index(bridge), number)


def tap(name, bridge):
    return '%s-%s' % (bridge, name)


def exists():
    return os.path.exists('/run/netns/' + NAMESPACE)


def wrapper():
    """Return the prefix of a command that has to run in the namespace.

    The command sees the namespace's /etc/hosts, too.
    """
    return ['ip', 'netns', 'exec', NAMESPACE]


def quick_wrapper():
    """Return a faster prefix (2 ms), for commands without host names."""
    return ['nsenter', '--net=/run/netns/' + NAMESPACE]


def hosts(nodes):
    lines = ['127.0.0.1 localhost', CONTROL + ' control']
    lines += ['%s %s' % (node_ip(n), name) for name, n in nodes.items()]
    return '\n'.join(lines) + '\n'


def _batch(lines):
    command.run([*quick_wrapper(), 'ip', '-batch', '-'],
                input='\n'.join(lines) + '\n')


def create(nodes):
    """Create the namespace with its bridges and taps."""
    if exists():
        raise errors.LabError('the network namespace %s exists already: is '
                              'a laboratory up?' % NAMESPACE)
    if not os.path.exists('/dev/net/tun'):
        raise errors.LabError('/dev/net/tun is missing: this kernel has no '
                              'tap devices, or the container hides them')
    _ETC.mkdir(parents=True, exist_ok=True)
    (_ETC / 'hosts').write_text(hosts(nodes))
    command.run(['ip', 'netns', 'add', NAMESPACE])
    lines = ['link set lo up']
    for bridge, address in _BRIDGES.items():
        lines += ['link add %s type bridge' % bridge,
                  'addr add %s dev %s' % (address, bridge),
                  'link set %s up' % bridge]
        for name in nodes:
            port = tap(name, bridge)
            lines += ['tuntap add dev %s mode tap' % port,
                      'link set %s master %s up' % (port, bridge)]
    _batch(lines)


def cut(name):
    """Remove a node's port from the bridge."""
    _batch(['link set %s nomaster' % tap(name, 'lab')])


def restore(name):
    _batch(['link set %s master lab' % tap(name, 'lab')])


def pids():
    """Return the ids of the processes inside the namespace."""
    out = command.run(['ip', 'netns', 'pids', NAMESPACE])
    return [int(pid) for pid in out.split()]


def destroy():
    if exists():
        command.run(['ip', 'netns', 'del', NAMESPACE])
    (_ETC / 'hosts').unlink(missing_ok=True)
    if _ETC.is_dir():
        _ETC.rmdir()
