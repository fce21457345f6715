# SPDX-License-Identifier: Apache-2.0
"""Files by which tests tell the driver where volumes have to stop.

The files are in a folder of the host that all nodes mount. Only their names
have a meaning::

        VOLUME.STEP.NODE    stop the volume when the node has done the step
        VOLUME.stopped      the volume has stopped: no flow continues for it
        VOLUME.durable      the guest's write to the volume is on the disk
        VOLUME.dry          its source gives no data (tests/admin/driver.py)
        VOLUME.waits        its copy waits for its turn
        VOLUME.clone_waits  so does that of a clone of it
"""

import os
import pathlib

#: MiB per GiB of a volume's nominal size, so that a copy is fast.
MIB = 16
#: Start of the name of a volume from a snapshot; the id of the volume that
#: the snapshot was taken of follows, and tells at which step it stops.
COPY_OF = 'copy of '
#: Start of the name of a clone of a volume, whose id follows.
CLONE_OF = 'clone of '
#: The folder's path on the nodes.
ON_NODE = pathlib.Path('/run/crash')


def _order(volume_id, step, node):
    return '%s.%s.%s' % (volume_id, step.name, node)


def stop_at(folder, volume_id, step, node):
    """Set the step at which a volume stops."""
    (folder / _order(volume_id, step, node)).touch()


def anybody_told(folder):
    """Return whether any volume has orders; VOLUME.durable is none."""
    return folder.exists() and any(not name.endswith('.durable')
                                   for name in os.listdir(folder))


def stop_if_told(folder, volume_id, step, node):
    """Stop a volume if it has to stop at this step.

    :returns: whether the volume is stopped
    """
    if _order(volume_id, step, node) in os.listdir(folder):
        (folder / (volume_id + '.stopped')).touch()
    return stopped(folder, volume_id)


def stopped(folder, volume_id):
    """Return whether a volume has stopped at its step."""
    return (folder / (volume_id + '.stopped')).exists()


def go_on(folder):
    """Let all volumes continue."""
    for name in os.listdir(folder):
        if not name.endswith('.durable'):
            (folder / name).unlink()


def durable(folder, volume_id):
    """Return whether the write of a volume's guest is on the disk."""
    return volume_id + '.durable' in os.listdir(folder)


def hold_up(folder, volume_id):
    """Stop a volume's hydration as soon as it begins."""
    (folder / (volume_id + '.dry')).touch()


def dry(folder, volume_id):
    """Return whether a volume's hydration has to be stopped."""
    return (folder / (volume_id + '.dry')).exists()


def waits(folder, volume_id, name=''):
    """Return whether a volume's copy waits for its turn.

    :param name: of the volume, which tells whether it is a clone
    """
    return (folder / (volume_id + '.waits')).exists() or (
        name.startswith(CLONE_OF) and
        (folder / (name.removeprefix(CLONE_OF) + '.clone_waits')).exists())


def let_go(folder, volume_id):
    """Let a volume's hydration continue."""
    (folder / (volume_id + '.dry')).unlink(missing_ok=True)
