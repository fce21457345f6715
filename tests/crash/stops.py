# SPDX-License-Identifier: Apache-2.0
"""How a test tells the driver where to stop.

The folder is one of the host that all nodes mount. The names of its files
say everything::

    VOLUME.STEP.NODE    stop the volume when that node has done that step
    VOLUME.stopped      it has: nobody does anything more for the volume
    VOLUME.durable      what its guest has written is on the disk
    VOLUME.dry          nothing comes from its source (tests/admin/driver.py)
"""

import os
import pathlib

#: MiB of a volume that stand for each GiB, so that a copy takes a moment.
MIB = 16
#: Where the nodes see it.
ON_NODE = pathlib.Path('/run/crash')


def _order(volume_id, step, node):
    return '%s.%s.%s' % (volume_id, step.name, node)


def stop_at(folder, volume_id, step, node):
    """Have a volume stopped at a step."""
    (folder / _order(volume_id, step, node)).touch()


def anybody_told(folder):
    """Whether any volume has to stop anywhere."""
    return folder.exists() and any(not name.endswith('.durable')
                                   for name in os.listdir(folder))


def stop_if_told(folder, volume_id, step, node):
    """Say that a volume has come to a step; returns whether it is stopped."""
    if _order(volume_id, step, node) in os.listdir(folder):
        (folder / (volume_id + '.stopped')).touch()
    return stopped(folder, volume_id)


def stopped(folder, volume_id):
    """Whether a volume has come to the step where it has to stop."""
    return volume_id + '.stopped' in os.listdir(folder)


def go_on(folder):
    """Let all volumes go on, wherever they are."""
    for name in os.listdir(folder):
        if not name.endswith('.durable'):
            (folder / name).unlink()


def durable(folder, volume_id):
    """Whether what a volume's guest has written is on the disk."""
    return volume_id + '.durable' in os.listdir(folder)


def hold_up(folder, volume_id):
    """Have a volume's copy held up as soon as it begins."""
    (folder / (volume_id + '.dry')).touch()


def dry(folder, volume_id):
    """Whether a volume's copy is to be held up."""
    return (folder / (volume_id + '.dry')).exists()


def let_go(folder, volume_id):
    """Let a volume that is held up be copied."""
    (folder / (volume_id + '.dry')).unlink(missing_ok=True)
