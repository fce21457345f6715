# SPDX-License-Identifier: Apache-2.0
"""Volumes whose hydration is stopped, so that they keep their state."""

from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from tests.crash import base
from tests.crash import stops

#: Options of the backend.
OPTIONS = dict(base.OPTIONS,
               volume_driver='tests.admin.driver.StoppingDriver',
               # So that a guest's block does not need the source.
               dmclone_region_size='4')

_RESUME = """
for source in $(dmsetup ls | grep -o '^dmclone-[^ \t]*-source'); do
    dmsetup info -c --noheadings -o suspended $source | grep -q Suspended &&
        dmsetup resume $source
done; true
"""


def is_held(test, name_id):
    """Return whether a clone on the peer hydrates and is not complete."""
    clone = status.clone(test.clone_status(test.peer, Names(name_id).path()))
    return clone.hydration and clone.hydrated < clone.total


def let_go(test, volume):
    """Let the hydration of one volume continue."""
    stops.let_go(base.FOLDER, volume.volume_id)
    test.peer.run('dmsetup resume ' + Names(
        volume.placeholder_id).of(SOURCE))


def resume_all(node):
    """Let all stopped hydrations on a node continue."""
    node.run(_RESUME)
