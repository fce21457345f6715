# SPDX-License-Identifier: Apache-2.0
"""etcd, the optional store of Cinder's locks, set up as by DevStack."""

import signal

from lab import inside
from lab import network
from lab import paths
from lab import proc

PACKAGES = ['etcd-server']
FOLDER = paths.STATE / 'etcd'
PORT = 2379
ADDRESS = 'http://%s:%d' % (network.CONTROL, PORT)
#: As DevStack writes it.
BACKEND_URL = 'etcd3+' + ADDRESS
#: Seconds until a lock expires that is not renewed: tooz's default.
LEASE = 30
_PEERS = 'http://127.0.0.1:2380'


def argv():
    return ['etcd', '--name', 'lab', '--data-dir', FOLDER,
            '--listen-client-urls', ADDRESS,
            '--advertise-client-urls', ADDRESS,
            '--listen-peer-urls', _PEERS,
            '--initial-advertise-peer-urls', _PEERS,
            '--initial-cluster', 'lab=' + _PEERS]


def ready():
    return inside.answers(PORT, '/health')


def pause():
    """Stop etcd's process; its connections stay open."""
    proc.send('etcd', signal.SIGSTOP)


def resume():
    proc.send('etcd', signal.SIGCONT)
