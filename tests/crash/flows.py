# SPDX-License-Identifier: Apache-2.0
"""The steps of each flow, in order, and on which side: where a crash may come.

A unit test lets the driver go through each flow and compares.
"""

from dmclone_driver.steps import Step

HOME, PEER = 'home', 'peer'

#: Up to the commit, however the volume is attached.
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
MOVE = ((HOME, Step.COMMITTED), *_START)
#: Attached on a peer.
ATTACH_AWAY = (*PREPARE, *MOVE)
#: The guest of a live migration writes on the peer.
MIGRATE = (*PREPARE, (PEER, Step.COMMITTED), *_START)
#: All is copied.
COMPLETE = ((PEER, Step.LINEAR), (PEER, Step.COMPLETE), *_DISMANTLE,
            *_FORGET, *_REMOVE_SOURCE)
#: A live migration is aborted: the new attachment goes.
ROLL_BACK = (
    (PEER, Step.ABANDONED), *_DISMANTLE, (PEER, Step.DELETED), *_FORGET,
    (HOME, Step.ABANDONED), (HOME, Step.UNEXPORTED), (HOME, Step.GONE))
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
