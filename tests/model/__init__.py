# SPDX-License-Identifier: Apache-2.0

from cinder import objects

# As every program of Cinder does before it imports anything else.
objects.register_all()
