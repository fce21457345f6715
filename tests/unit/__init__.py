# SPDX-License-Identifier: Apache-2.0

# Registers Cinder's objects, and patches for eventlet unless that is disabled,
# like Cinder's own tests: before other modules of Cinder are used.
import cinder.tests.unit  # noqa: F401
