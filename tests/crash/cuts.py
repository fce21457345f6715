# SPDX-License-Identifier: Apache-2.0
"""The faults: processes, nodes and networks that fail and come back."""

import contextlib
import time

# Seconds of an outage, long enough to be noticed.
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
    """Cut the network between two nodes, not to the control plane."""
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


#: {fault: function of the laboratory, the home and the peer}. The fault begins
#: when the context is entered, and ends when it is left.
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
