# SPDX-License-Identifier: Apache-2.0

from cinder import objects

# Every program of Cinder does this before other imports.
objects.register_all()
