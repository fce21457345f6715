# SPDX-License-Identifier: Apache-2.0
"""The tail of a clone's table, with which its requests can be held.

Below the tails of all clones of a node is one device, the anchor, whose reads
take half a second. Nothing reads the tail but a hold, see
:mod:`dmclone_driver.node.devicemapper.holds`: the handle above a clone ends
before it.

A clone takes discards only if what is below its tail takes them, too
(dm_table_supports_discards in drivers/md/dm-table.c). The zero target of
Linux 6.1 does not (zero_ctr in drivers/md/dm-zero.c). There a file in memory
is below the anchor instead.
"""

import threading

from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.names import ANCHOR
from dmclone_driver.node.names import ZEROS
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.privsep import ram_disks

LOG = logging.getLogger(__name__)

#: As long as the largest logical block, which is the least that can be read.
LENGTH = Sectors(8)

#: Milliseconds that a read takes: much more than a hold, which must not
#: outlast it, and little enough for a swap of the clone that has to wait.
DELAY = 500

# Two requests may need the device for the first time.
_creating = threading.Lock()


def tail() -> list[table.Segment]:
    """Return the tail of a clone's table, and create the anchor before.

    The devices stay until the node goes down.

    :returns: an empty list if that fails, as without a delay target: the
        clone's requests can't be held then
    """
    with _creating:
        try:
            if not _is_there():
                _create()
        except (processutils.ProcessExecutionError, OSError) as error:
            # Another backend of this node may have been faster.
            if not _is_there():
                LOG.warning('The device dmclone-anchor cannot be created: '
                            '%s. Volumes with busy guests may be copied more '
                            'slowly than dmclone_hydration_min_rate.',
                            exception.text_of(error))
                return []
    return [table.Linear(LENGTH, sysfs.MAPPER + '/' + ANCHOR)]


def takes_discards() -> bool:
    """Whether clones with a tail may take discards.

    Before the first one has its tail that is not known.

    :raises: OSError
    """
    return ANCHOR not in sysfs.devices() or sysfs.takes_discards(ANCHOR)


def _is_there() -> bool:
    """Whether the anchor has its table; dmsetup may have been killed."""
    return dmsetup.kinds(ANCHOR) == 'delay'


def _create() -> None:
    if dmsetup.kinds(ZEROS) != 'zero':
        dmsetup.create(ZEROS, 'DMCLONE-zeros', table.Zero(LENGTH))
    dmsetup.create(ANCHOR, 'DMCLONE-anchor',
                   table.Delay(LENGTH, _below(), DELAY))


def _below() -> str:
    """Return the path of a device that has no data, and takes discards.

    If there is none, clones with a tail take none: all of them is copied.
    """
    if not sysfs.takes_discards(ZEROS):
        try:
            return ram_disks.loop(Bytes(LENGTH * table.SECTOR))
        except (processutils.ProcessExecutionError, OSError) as error:
            LOG.info('There is no device that takes discards below '
                     'dmclone-anchor: %s. Of thin volumes all is copied.',
                     exception.text_of(error))
    return sysfs.MAPPER + '/' + ZEROS
