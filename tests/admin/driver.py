# SPDX-License-Identifier: Apache-2.0
"""The crash tests' driver, whose copies can be held up as well.

A volume with a file ``VOLUME.dry`` in the folder of tests/crash/stops.py
starts to copy and gets nothing from its source, until that is resumed.
"""

from dmclone_driver.devicemapper import dmsetup
from dmclone_driver import handles
from dmclone_driver import hydration
from dmclone_driver.names import SOURCE
from dmclone_driver import outages
from tests.crash import driver
from tests.crash import stops

StoppingDriver = driver.StoppingDriver


def _is_dry(names):
    return stops.dry(stops.ON_NODE, driver.volume_of(names.name_id))


def _start_hydration(names, start=handles.start_hydration):
    if _is_dry(names):
        dmsetup.suspend(names.of(SOURCE), flush=False)
    start(names)


def _connect_source(names, disk, length, connect=handles.connect_source):
    if not _is_dry(names):
        connect(names, disk, length)


handles.start_hydration = _start_hydration
handles.connect_source = _connect_source
# The source of what makes no progress would be connected anew.
hydration.STALLED = 3600
# A source that is suspended would be resumed.
outages.Outages.look = lambda self: 3600
