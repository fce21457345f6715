# SPDX-License-Identifier: Apache-2.0

import gc

# Registers Cinder's objects, and patches for eventlet unless that is disabled,
# like Cinder's own tests: before other modules of Cinder are used.
import cinder.tests.unit  # noqa: F401

# A collection looks at the modules, too, which are hundreds of thousands of
# objects that stay. No test depends on when one runs.
gc.freeze()
gc.set_threshold(50000, 20, 100)
