# SPDX-License-Identifier: Apache-2.0

import os

import eventlet

# A greenlet of the simulation must not switch to eventlet's.
os.environ['OS_CINDER_DISABLE_EVENTLET_PATCHING'] = 'True'
# The tests of Cinder 28 and older patch all the same. Locks would wait for
# eventlet's greenlets then, which never run here.
eventlet.monkey_patch = lambda **modules: None

from tests import unit  # noqa: E402, F401
