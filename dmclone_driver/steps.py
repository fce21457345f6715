# SPDX-License-Identifier: Apache-2.0
"""The steps of all that is done to a volume, and the flows of steps.

A unit test lets the driver go through each flow and compares. After each step
the process may die, or its node, or the network: what that leaves behind, and
who goes on from there, is a page of its own in the documentation, "When
something dies".
"""

import enum

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Step(enum.Enum):
    """What is true once the step is done."""

    #: A move is in the database: nobody else moves the volume.
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
    SWITCHED = 'switched'
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
    #: The database says that the move will never be switched.
    ABORTED = 'aborted'
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


# On which side a step is done.
HOME, PEER = 'home', 'peer'

#: Up to the switchover, however the volume is attached.
PREPARE = (
    (HOME, Step.BEGUN), (HOME, Step.EXPORTED), (PEER, Step.ALLOCATED),
    (PEER, Step.FORMATTED), (PEER, Step.CONNECTED), (PEER, Step.PASSIVE))
_START = ((HOME, Step.SEALED), (PEER, Step.OPENING), (PEER, Step.OPENED),
          (PEER, Step.HYDRATING))
_DISMANTLE = ((PEER, Step.DISMANTLED), (PEER, Step.DISCONNECTED))
_FORGET = ((PEER, Step.FORGOTTEN),)
_REMOVE_SOURCE = ((PEER, Step.RELEASED), (HOME, Step.CUT_LOOSE),
                  (HOME, Step.DELETED), (HOME, Step.GONE))

#: The old attachment of a live migration goes.
MOVE = ((HOME, Step.SWITCHED), *_START)
#: Attached on a peer.
ATTACH_AWAY = (*PREPARE, *MOVE)
#: The guest of a live migration writes on the peer.
MIGRATE = (*PREPARE, (PEER, Step.SWITCHED), *_START)
#: All is copied.
COMPLETE = ((PEER, Step.LINEAR), (PEER, Step.COMPLETE), *_DISMANTLE,
            *_FORGET, *_REMOVE_SOURCE)
#: A live migration is aborted: the new attachment goes.
ROLL_BACK = (
    (PEER, Step.ABORTED), *_DISMANTLE, (PEER, Step.DELETED), *_FORGET,
    (HOME, Step.ABORTED), (HOME, Step.UNEXPORTED), (HOME, Step.GONE))
#: A volume is deleted, before or after all of it is copied.
DELETE_CLONE = (
    *_DISMANTLE, *_FORGET, (PEER, Step.CUT_LOOSE), (PEER, Step.DELETED),
    *_REMOVE_SOURCE)
DELETE = ((HOME, Step.CUT_LOOSE), (HOME, Step.DELETED))
EXTEND = ((HOME, Step.EXTENDED), (HOME, Step.SHOWN))

FLOWS = {'attach away': ATTACH_AWAY, 'live migration': MIGRATE,
         'old attachment goes': MOVE, 'roll back': ROLL_BACK,
         'completion': COMPLETE,
         'deletion of a clone': DELETE_CLONE, 'deletion': DELETE,
         'extension': EXTEND}


def reached(step, row_id):
    """Say that a step is done.

    :param row_id: of the volume or placeholder, or the name of its logical
        volume
    """
    LOG.debug('%(id)s: %(step)s', {'id': row_id, 'step': step.value})
