# SPDX-License-Identifier: Apache-2.0
"""The crash tests' driver, with hydrations that can be stopped, too.

If there is a file ``VOLUME.dry`` in the folder of tests/crash/stops.py, the
hydration of the volume begins, but its source is suspended, and gives no data
until it is resumed.
"""

from dmclone_driver.move import hydration
from dmclone_driver.move import outages
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import SOURCE
from tests.crash import driver
from tests.crash import stops

StoppingDriver = driver.StoppingDriver


def _is_dry(names):
    return stops.dry(stops.ON_NODE, driver.volume_of(names.name_id))


def _start_hydration(volume, paced=False, start=LocalVolume.start_hydration):
    if _is_dry(volume.names):
        dmsetup.suspend(volume.names.of(SOURCE), flush=False)
    start(volume, paced)


def _connect_source(volume, disk, length, anew=False,
                    connect=LocalVolume.connect_source):
    if not _is_dry(volume.names):
        connect(volume, disk, length, anew)


LocalVolume.start_hydration = _start_hydration
LocalVolume.connect_source = _connect_source
# Otherwise the source of a stalled clone would be connected again.
hydration.STALLED = 3600
# Otherwise a suspended source would be resumed.
outages.Outages.look = lambda self: 3600
