# SPDX-License-Identifier: Apache-2.0
"""The steps of each operation on a volume, and the flows of steps.

A unit test runs each flow and compares its steps. After each step the process,
its node or the network may fail. The page "Failures at each step" of the
documentation says what each failure leaves behind, and who continues.
"""

import enum

from oslo_log import log as logging

from dmclone_driver.node import names

LOG = logging.getLogger(__name__)


class Step(enum.Enum):
    """A step, described by what is true once it is done."""

    #: A move is in the database: no other move of the volume can begin.
    BEGUN = 'begun'
    #: The home serves the volume, read-only, to the peer.
    EXPORTED = 'exported'
    #: The peer has a logical volume for it.
    ALLOCATED = 'allocated'
    #: ... and metadata, zeroed for the first and only time.
    FORMATTED = 'formatted'
    #: ... and a session to the home.
    CONNECTED = 'connected'
    #: ... and a clone whose gate is closed.
    PASSIVE = 'passive'
    #: The peer is the volume's home.
    SWITCHED = 'switched'
    #: The old home refuses writes, and a tag of LVM there says so.
    SEALED = 'sealed'
    #: A tag of LVM on the new home says that the gate may be open.
    OPENING = 'opening'
    #: The new home lets writes through.
    OPENED = 'opened'
    #: A tag of LVM on the new home says how much is marked at most: what the
    #: source has not allocated.
    MAPPED = 'mapped'
    #: ... and that is marked in the clone, and not copied.
    MARKED = 'marked'
    #: The new home copies the regions that it does not have yet.
    HYDRATING = 'hydrating'
    #: The new home has all regions, and the handle is linear.
    LINEAR = 'linear'
    #: ... and a tag of LVM says so.
    COMPLETE = 'complete'
    #: A clone's gate and source shim are gone.
    DISMANTLED = 'dismantled'
    #: ... and its session.
    DISCONNECTED = 'disconnected'
    #: ... and its metadata.
    FORGOTTEN = 'forgotten'
    #: The database says that nothing needs the source.
    RELEASED = 'released'
    #: The database says that the move will never switch over.
    ABORTED = 'aborted'
    #: Of a volume to delete, only its data and a linear handle are left.
    CUT_LOOSE = 'cut loose'
    #: The logical volume of a volume, source or destination is deleted.
    DELETED = 'deleted'
    #: Of a source with snapshots, only the logical volume is left.
    KEPT = 'kept'
    #: The home does not export the volume any longer.
    UNEXPORTED = 'unexported'
    #: A volume that hydrates, or is cloned, has a snapshot more.
    FROZEN = 'frozen'
    #: A complete copy on another node is the snapshot.
    FOLLOWED = 'followed'
    #: The database says that another node has to delete a snapshot.
    DEFERRED = 'deferred'
    #: A snapshot's logical volume is deleted.
    PURGED = 'purged'
    #: A clone of a snapshot has taken the place of a volume's data.
    REVERTED = 'reverted'
    #: The placeholder is gone from the database.
    GONE = 'gone'
    #: The logical volume has its new size.
    EXTENDED = 'extended'
    #: ... and the handle shows it.
    SHOWN = 'shown'


# The side on which a step is done.
HOME, PEER = 'home', 'peer'

#: Steps in their order, each with its side.
Points = tuple[tuple[str, Step], ...]

#: Up to the switchover, for every kind of attachment.
PREPARE = (
    (HOME, Step.BEGUN), (HOME, Step.EXPORTED), (PEER, Step.ALLOCATED),
    (PEER, Step.FORMATTED), (PEER, Step.CONNECTED), (PEER, Step.PASSIVE))
_START = ((HOME, Step.SEALED), (PEER, Step.OPENING), (PEER, Step.OPENED),
          (PEER, Step.HYDRATING))
_DISMANTLE = ((PEER, Step.DISMANTLED), (PEER, Step.DISCONNECTED))
_FORGET = ((PEER, Step.FORGOTTEN),)
_REMOVE_SOURCE = ((PEER, Step.RELEASED), (HOME, Step.CUT_LOOSE),
                  (HOME, Step.DELETED), (HOME, Step.GONE))

#: The old attachment of a live migration is deleted.
MOVE = ((HOME, Step.SWITCHED), *_START)
#: A volume is attached on a peer.
ATTACH_AWAY = (*PREPARE, *MOVE)
#: The guest of a live migration writes on the peer.
MIGRATE = (*PREPARE, (PEER, Step.SWITCHED), *_START)
#: All regions are hydrated.
COMPLETE = ((PEER, Step.LINEAR), (PEER, Step.COMPLETE), *_DISMANTLE,
            *_FORGET, *_REMOVE_SOURCE)
#: A live migration is aborted: the new attachment is deleted.
ROLL_BACK = (
    (PEER, Step.ABORTED), *_DISMANTLE, (PEER, Step.DELETED), *_FORGET,
    (HOME, Step.ABORTED), (HOME, Step.UNEXPORTED), (HOME, Step.GONE))
#: A volume is deleted, before or after it is complete.
DELETE_CLONE = (
    *_DISMANTLE, *_FORGET, (PEER, Step.CUT_LOOSE), (PEER, Step.DELETED),
    *_REMOVE_SOURCE)
#: A source is released from which snapshots were taken.
KEEP = ((PEER, Step.RELEASED), (HOME, Step.KEPT), (HOME, Step.GONE))
#: A volume is created from a snapshot on another node.
COPY = (
    (PEER, Step.BEGUN), (HOME, Step.EXPORTED), (PEER, Step.CONNECTED),
    (PEER, Step.ALLOCATED), (PEER, Step.FORMATTED), (PEER, Step.PASSIVE),
    (PEER, Step.OPENING), (PEER, Step.OPENED), (PEER, Step.HYDRATING))
#: A volume is reverted to a snapshot on another node. Cinder has taken a
#: snapshot of it before.
REVERT = (
    *COPY[:-3], (PEER, Step.REVERTED), *COPY[-3:], (PEER, Step.SEALED),
    (PEER, Step.KEPT), (PEER, Step.GONE))
#: The copy of a snapshot that follows its volume is complete.
FOLLOW = ((PEER, Step.LINEAR), (PEER, Step.COMPLETE), *_DISMANTLE, *_FORGET,
          (PEER, Step.FOLLOWED), (PEER, Step.RELEASED),
          (HOME, Step.UNEXPORTED), (HOME, Step.GONE))
#: A snapshot is deleted that is on another node than its volume.
PURGE = ((PEER, Step.DEFERRED), (HOME, Step.PURGED))
#: A volume that hydrates is deleted while a clone of it is copied. It is
#: completed as after a move before it is kept. The end is that of KEEP.
OUTLIVE = ((PEER, Step.DEFERRED), (PEER, Step.KEPT))
#: A snapshot is taken of a volume that hydrates.
FREEZE = ((HOME, Step.FROZEN),)
DELETE = ((HOME, Step.CUT_LOOSE), (HOME, Step.DELETED))
EXTEND = ((HOME, Step.EXTENDED), (HOME, Step.SHOWN))

FLOWS = {'attach away': ATTACH_AWAY, 'live migration': MIGRATE,
         'old attachment goes': MOVE, 'roll back': ROLL_BACK,
         'completion': COMPLETE,
         'release with snapshots': KEEP, 'volume from a snapshot': COPY,
         'snapshot that follows': FOLLOW, 'revert': REVERT,
         'deletion of a clone': DELETE_CLONE, 'deletion': DELETE,
         'extension': EXTEND, 'snapshot while it hydrates': FREEZE,
         'deferred deletion': PURGE, 'deletion while it is read': OUTLIVE}

#: Before the hydration, if both the source and the clone are thin.
MARKS = ((PEER, Step.MAPPED), (PEER, Step.MARKED))


def of_thin(points: Points) -> Points:
    """Return the steps of a flow for thin volumes."""
    before = (PEER, Step.HYDRATING)
    if before not in points:
        return points
    at = points.index(before)
    return (*points[:at], *MARKS, *points[at:])


def reached(step: Step, row_id: str) -> None:
    """Log that a step is done.

    :param row_id: of the volume or placeholder, or the name of its logical
        volume
    """
    LOG.debug('%(names)s: %(step)s', {'names': names.text(row_id),
                                      'step': step.value})
