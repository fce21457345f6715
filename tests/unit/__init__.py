# SPDX-License-Identifier: Apache-2.0

# Registers Cinder's objects, and patches for eventlet unless told otherwise,
# in the way of Cinder's own tests: before anything of Cinder is used.
import cinder.tests.unit  # noqa: F401
