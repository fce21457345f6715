# SPDX-License-Identifier: Apache-2.0
"""The steps of all that is done to a volume, in order, by name.

After each of them the process may die, or its node, or the network: what
that leaves behind, and who goes on from there, is a page of its own in the
documentation, "When something dies".
"""

import enum

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Step(enum.Enum):
    """What is true once the step is done."""

    #: A transfer is in the database: nobody else moves the volume.
    BEGUN = 'begun'
    #: The home serves the volume, read-only, to the peer.
    EXPORTED = 'exported'
    #: The peer has a logical volume for it.
    ALLOCATED = 'allocated'
    #: ... and metadata, zeroed for the first and only time.
    FORMATTED = 'formatted'
    #: ... and a session to the home.
    CONNECTED = 'connected'
    #: ... and a clone whose gate is shut.
    PASSIVE = 'passive'
    #: The peer is the volume's home.
    COMMITTED = 'committed'
    #: The old home refuses writes, which LVM there knows, too.
    SEALED = 'sealed'
    #: LVM on the new home says that the gate may be open.
    OPENING = 'opening'
    #: The new home lets writes through.
    OPENED = 'opened'
    #: It copies what it does not have yet.
    HYDRATING = 'hydrating'
    #: It has all, in a linear handle.
    LINEAR = 'linear'
    #: ... which LVM knows, too.
    COMPLETE = 'complete'
    #: A clone's gate and source shim are gone.
    DISMANTLED = 'dismantled'
    #: ... and its session.
    DISCONNECTED = 'disconnected'
    #: ... and its metadata.
    FORGOTTEN = 'forgotten'
    #: The database says that nobody needs the source.
    RELEASED = 'released'
    #: The database says that the transfer will never be committed.
    ABANDONED = 'abandoned'
    #: A volume that is deleted is nothing but a linear handle any more.
    CUT_LOOSE = 'cut loose'
    #: Its data is gone, or that of a destination which was thrown away.
    DELETED = 'deleted'
    #: The home does not serve it any more.
    UNEXPORTED = 'unexported'
    #: The placeholder is gone from the database.
    GONE = 'gone'
    #: The logical volume has its new size.
    EXTENDED = 'extended'
    #: ... and the handle shows it.
    SHOWN = 'shown'


def reached(step, row_id):
    """Say that a step is done.

    :param row_id: of the volume or placeholder, or the name of its logical
        volume
    """
    LOG.debug('%(id)s: %(step)s', {'id': row_id, 'step': step.value})
