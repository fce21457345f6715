# SPDX-License-Identifier: Apache-2.0
"""What is cut off, and how it comes back."""

import contextlib
import time

# Seconds that something is away, long enough for the others to notice.
AWAY = 5
NETWORK_AWAY = 60


@contextlib.contextmanager
def _killed(node):
    node.kill('cinder-volume')
    yield
    time.sleep(AWAY)
    node.start_service('cinder-volume')
    node.wait_ready()


@contextlib.contextmanager
def _without_power(node):
    node.cut_power()
    yield
    time.sleep(AWAY)
    node.start()
    node.wait_ready()


@contextlib.contextmanager
def _apart(node, other):
    """Two nodes do not reach each other; both reach the control plane."""
    for one, two in ((node, other), (other, node)):
        one.run('ip route add blackhole %s/32' % two.ip)
    yield
    time.sleep(NETWORK_AWAY)
    for one, two in ((node, other), (other, node)):
        one.run('ip route del blackhole %s/32' % two.ip)


@contextlib.contextmanager
def _without_cable(node):
    node.cut_network()
    yield
    time.sleep(NETWORK_AWAY)
    node.restore_network()


@contextlib.contextmanager
def _without_service(lab, name):
    lab.control.kill(name)
    yield
    time.sleep(AWAY)
    lab.control.start(name)


#: Each is called with the laboratory, the home and the peer. It cuts when it
#: is entered; all goes on without what was cut; then that comes back.
CUTS = {
    'home killed': lambda lab, home, peer: _killed(home),
    'peer killed': lambda lab, home, peer: _killed(peer),
    'home off': lambda lab, home, peer: _without_power(home),
    'peer off': lambda lab, home, peer: _without_power(peer),
    'no network between': lambda lab, home, peer: _apart(home, peer),
    'home off the network': lambda lab, home, peer: _without_cable(home),
    'rabbitmq': lambda lab, home, peer: _without_service(lab, 'rabbitmq'),
    'mariadb': lambda lab, home, peer: _without_service(lab, 'mariadb'),
}
