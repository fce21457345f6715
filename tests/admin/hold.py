# SPDX-License-Identifier: Apache-2.0
"""Volumes whose copy is held up, so that they stay what they are."""

from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from tests.crash import base
from tests.crash import stops

#: Of the backend.
OPTIONS = dict(base.OPTIONS,
               volume_driver='tests.admin.driver.StoppingDriver',
               # So that a guest's block needs nothing of the source.
               dmclone_region_size='4')

_RESUME = """
for source in $(dmsetup ls | grep -o '^dmclone-[^ \t]*-source'); do
    dmsetup info -c --noheadings -o suspended $source | grep -q Suspended &&
        dmsetup resume $source
done; true
"""


def is_held(test, name_id):
    """Whether a clone on the peer copies, and is not complete."""
    clone = status.clone(test.clone_status(test.peer, Names(name_id).path()))
    return clone.hydration and clone.hydrated < clone.total


def let_go(test, volume):
    """Let one volume be copied."""
    stops.let_go(base.FOLDER, volume.volume_id)
    test.peer.run('dmsetup resume ' + Names(
        volume.placeholder_id).of(SOURCE))


def resume_all(node):
    """Let all that a node still holds up be copied."""
    node.run(_RESUME)
