# SPDX-License-Identifier: Apache-2.0

import os

# A greenlet of the simulation must not switch to eventlet's.
os.environ['OS_CINDER_DISABLE_EVENTLET_PATCHING'] = 'True'

from tests import unit  # noqa: E402, F401
