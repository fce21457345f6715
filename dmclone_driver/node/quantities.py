# SPDX-License-Identifier: Apache-2.0
"""Units as types: a size in bytes is not a length in sectors.

The kernel counts sectors of 512 bytes, LVM and Cinder bytes, and options
KiB. A value of one type becomes another one by an explicit calculation.
"""

from typing import NewType

Bytes = NewType('Bytes', int)
Sectors = NewType('Sectors', int)
KiB = NewType('KiB', int)
