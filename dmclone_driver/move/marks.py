# SPDX-License-Identifier: Apache-2.0
"""Regions that are not copied, since the source has nothing allocated there.

They are marked as present in a clone on a thin volume, where they read zeros,
as they do at the source. That is done once, after the source is sealed and the
gate is open, and before the hydration is enabled. Whatever fails there, the
rest is copied. See the documentation, "Decisions".
"""

import collections.abc
import math
import threading
from typing import Any

from cinder import context as cinder_context
from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import jobs
from dmclone_driver.move import maps
from dmclone_driver.move.outages import Outages
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move import reserve
from dmclone_driver.move import room
from dmclone_driver.node import anchor
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import marks as process
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import lvm
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import thin_maps
from dmclone_driver.node.thin_maps import Range
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import marks as privileged
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

# Seconds that one privileged call lasts: the volume's lock is held meanwhile.
ROUND = 2

# The most ranges of one call.
RANGES = 20000

# Such calls at a time: the threads of the privileged daemon are few.
CALLS = 4

# Calls in succession that mark nothing, since the guest's requests do not end
# in time, after which the rest is copied.
VAIN = 15

# Seconds beside those for reading the map until it has to be there.
_MORE = 10

# Seconds for which what cannot be marked is tried again, if there is no room
# to copy it.
AGAIN = 240

_BUSY = 'its devices or its guest left no moment in which to mark them'

_FAILURES = (thin_maps.UnusableMap, exception.PeerError, ValueError, OSError,
             processutils.ProcessExecutionError)


class _Later(Exception):
    """What need not be copied is to be marked later."""


class Marks:
    """What is marked in the clones of this node."""

    def __init__(self, backend: Backend, outages: Outages) -> None:
        self._backend = backend
        self._outages = outages
        #: What is marked at most, from the tags: {clone: bytes}.
        self._sizes: dict[Names, Bytes] = {}
        #: Clones for which that was decided by this process.
        self._decided: set[Names] = set()
        #: Clones whose maps are being read, or that are being marked. That may
        #: take minutes.
        self._making: set[Names] = set()
        #: Clones of which that is tried again: {clone: since when}.
        self._failed: dict[Names, float] = {}
        self._turns = threading.BoundedSemaphore(CALLS)

    # For those who look

    def remember(self, names: Names, size: Bytes) -> None:
        """Remember the tag of a clone."""
        self._sizes[names] = size

    def forget(self, names: Names) -> None:
        """Forget a clone that is gone."""
        self._sizes.pop(names, None)
        self._decided.discard(names)
        self._failed.pop(names, None)

    def is_undecided(self, names: Names) -> bool:
        """Whether it is not decided yet what is marked in a clone."""
        # The last try may be after the longest pause.
        return names in self._making or (
            self._failing(names) < AGAIN + jobs.RETRY_LAST)

    def _failing(self, names: Names) -> float:
        """Return since how many seconds a clone cannot be marked."""
        now = self._backend.jobs.pauses.now()
        return now - self._failed.get(names, -math.inf)

    def _decide_once(self, names: Names) -> None:
        self._decided.add(names)
        self._failed.pop(names, None)

    def without(self, names: Names, status: CloneStatus) -> CloneStatus:
        """Return a clone's status as if it had no region that is marked."""
        size = self._sizes.get(names)
        return (status.without(size // status.region_bytes)
                if size and status.region else status)

    # For those who choose a node

    def possible(self) -> bool:
        """Whether the next clone here may be marked, as far as is known."""
        return thin_maps.is_installed() and (
            not self._backend.tuning.held or anchor.takes_discards())

    # For the start of a hydration

    def are_due(self, names: Names) -> bool:
        """Whether it is to be decided what is marked in a clone.

        Nothing runs for a clone that takes no discards.
        """
        return self._due(names) is not None

    def _due(self, names: Names) -> LogicalVolume | None:
        if names in self._decided or names in self._outages.lost or (
                not _may(names)):
            return None
        lv = self._backend.logical_volume(names)
        status = dmsetup.clone(names.of(CLONE))
        if lv is None or status is None or not (lv.markable and lv.clone):
            return None
        # After a crash in the middle it is done again.
        if lv.marked is not None and (
                status.hydrated * status.region_bytes >= lv.marked):
            return None
        return lv

    def make(self, context: cinder_context.RequestContext, names: Names,
             source: Placeholder) -> bool:
        """Mark the regions of a clone that its source has not allocated.

        :param source: which is sealed
        :returns: False if nothing is to be copied yet
        """
        if names in self._outages.lost:
            # Nothing is marked then, and all would be copied.
            return False
        self._making.add(names)
        try:
            self._make(context, names, source)
        except _Later as error:
            LOG.info('Of %(names)s nothing is copied yet: %(why)s. There is '
                     'no room for what its source has not allocated.',
                     {'names': names, 'why': error})
            return False
        finally:
            self._making.discard(names)
        return True

    def _make(self, context: cinder_context.RequestContext, names: Names,
              source: Placeholder) -> None:
        try:
            lv = self._due(names)
            found = self._room(names)
            if found.thin and found.used_up:
                # In a full pool the clone could not record it.
                return
            if found.thin and lv is not None:
                self._decide(context, names, source, lv)
            elif found.thin:
                self._refuse_undecided(names)
        except _FAILURES as error:
            if names not in self._decided and self._room(names).thin:
                self._refuse_to_fill(names, exception.text_of(error))
            LOG.info('Of %(names)s all is copied that is not marked yet: '
                     '%(why)s.', {'names': names,
                                  'why': exception.text_of(error)})
        try:
            self._correct(names, source)
        except _FAILURES as error:
            LOG.info('The tag of what is marked in %(names)s says too much: '
                     '%(why)s.', {'names': names,
                                  'why': exception.text_of(error)})

    def _room(self, names: Names) -> reserve.Room:
        return reserve.look(
            self._backend.group.vg_name,
            int(self._backend.configuration.reserved_percentage), [names])

    def _decide(self, context: cinder_context.RequestContext, names: Names,
                source: Placeholder, lv: LogicalVolume) -> None:
        again = lv.marked is not None
        status = dmsetup.clone(names.of(CLONE))
        if status is None:
            raise thin_maps.UnusableMap(_('it is no clone any longer'))
        try:
            ranges = self._ranges(context, source, status, lv)
        except _FAILURES as error:
            self._refuse_to_fill(names, exception.text_of(error))
            if not again:
                self._tag(names, source, Bytes(0))
            self._decide_once(names)
            raise
        size = Bytes(sum(each.count for each in ranges) * status.region_bytes)
        # Before the first discard, for those who look. It is too much if some
        # are written by a guest, or if this is interrupted.
        self._tag(names, source, size)
        steps.reached(Step.MAPPED, names.name_id)
        try:
            marked, left = self._mark(names, source, ranges)
        except _FAILURES as error:
            self._refuse_to_fill(names, exception.text_of(error))
            self._decide_once(names)
            raise
        if left:
            self._refuse_to_fill(names, _BUSY)
            LOG.info('Of %(names)s %(number)d ranges of regions are copied '
                     'that its source has not allocated: %(why)s.',
                     {'names': names, 'number': left, 'why': _BUSY})
        self._decide_once(names)
        if not again:
            self._tag(names, source, Bytes(marked * status.region_bytes))
        steps.reached(Step.MARKED, names.name_id)
        LOG.info('Of %(names)s %(marked)d of %(total)d regions are not '
                 'copied: its source has nothing there.',
                 {'names': names, 'marked': marked, 'total': status.total})

    def _refuse_undecided(self, names: Names) -> None:
        """Have a clone marked later that could not be marked, without room.

        It was let in since only what its source has allocated would be copied.

        :raises: _Later, ProcessExecutionError
        """
        if names in self._decided or names in self._sizes:
            return
        lv = self._backend.logical_volume(names)
        if lv is not None and lv.marked is None and (
                lv.tagged(logical_volumes.ALLOCATED_TAG) is not None):
            self._refuse_to_fill(names, _('its devices take no discards'))

    def _refuse_to_fill(self, names: Names, why: str) -> None:
        """Have a clone marked later if there is no room to copy the rest.

        That copy would fill the pool up to its reserve, and could not end, nor
        could others that had room. Its tag says what could be marked, so that
        the rest is found to be due. After AGAIN seconds it returns, and all is
        copied.

        :raises: _Later, VolumeGroupNotFound
        """
        status = dmsetup.clone(names.of(CLONE))
        if status is None:
            return
        try:
            room.refuse_filling(self._backend, names, Bytes(
                (status.total - status.hydrated) * status.region_bytes),
                all_of_it=True)
        except (exception.NoRoomInPool, lvm.LVMError) as error:
            # Without LVM it is not known.
            self._failed.setdefault(names, self._backend.jobs.pauses.now())
            if self._failing(names) < AGAIN:
                raise _Later(why) from error

    def count_all_of(self, names: Names) -> None:
        """Have all of a copy that begins count, if nothing is marked in it.

        Until then what its source has allocated counts, see thin_pools.
        Callers hold the lock of its volume.
        """
        self._failed.pop(names, None)
        if names in self._sizes:
            return
        try:
            lv = (self._backend.logical_volume(names)
                  if self._room(names).thin else None)
            if lv is None:
                return
            if lv.marked is None and (
                    lv.tagged(logical_volumes.ALLOCATED_TAG) is not None):
                logical_volumes.tag(lv, logical_volumes.MARKED_TAG + '0')
            self._sizes[names] = lv.marked or Bytes(0)
        except _FAILURES as error:
            LOG.info('The room that the copy of %(names)s takes is not known '
                     'to others: %(why)s.',
                     {'names': names, 'why': exception.text_of(error)})

    def _correct(self, names: Names, source: Placeholder) -> None:
        """Have the tag say no more than there is, before copies begin.

        It may if the service, or the process that marks, was killed, and the
        rest was not marked afterwards. What is copied would not be seen then,
        and a copy that runs be taken for one that is stalled.

        :raises: UnusableMap, ProcessExecutionError
        """
        size = self._sizes.get(names)
        status = dmsetup.clone(names.of(CLONE)) if size else None
        if size and status is not None and status.healthy:
            # What a guest has written counts, too.
            there = Bytes(status.hydrated * status.region_bytes)
            if there < size:
                self._sizes[names] = there
                self._tag(names, source, there)

    def _tag(self, names: Names, source: Placeholder, size: Bytes) -> None:
        with self._backend.lock_owner(source):
            lv = self._backend.logical_volume(names)
            if lv is None or not lv.clone:
                raise thin_maps.UnusableMap(_('it is no clone any longer'))
            if lv.marked != size:
                logical_volumes.retag(
                    lv, logical_volumes.MARKED_TAG,
                    logical_volumes.MARKED_TAG + str(size))
            self._sizes[names] = size

    def _ranges(self, context: cinder_context.RequestContext,
                source: Placeholder, status: CloneStatus,
                lv: LogicalVolume) -> list[Range]:
        """Return the regions that are marked.

        The first one is not: in a full pool a flush of a volume without its
        first block fails, and the clone's record with it
        (__process_bio_read_only in drivers/md/dm-thin.c). Nor is one that has
        anything allocated here: a guest has written it, and a power cut may
        have taken it from the clone's record. It reads its source then, and
        has to for ever.

        :raises: UnusableMap, PeerError, ValueError, ProcessExecutionError
        """
        pool = thin_pools.find(lv.group)
        if pool is None or lv.pool != pool.name or not pool.zeroes:
            raise thin_maps.UnusableMap(_(
                'its thin pool does not zero new blocks'))
        found, page, pages = [], 0, 1
        while page < pages:
            answer = self._backend.client.unallocated(
                context, source.backend, source.id, status.length,
                status.region, page, maps.TIMEOUT + _MORE)
            if answer['why']:
                raise thin_maps.UnusableMap(_(
                    'its source has no map: %s') % answer['why'])
            pages = answer['pages']
            if answer['ranges']:
                found += thin_maps.parse_page(answer['ranges'])
            page += 1
        return list(thin_maps.common(
            thin_maps.inside(found, 1, status.length // status.region),
            thin_maps.unallocated(maps.read(lv), Sectors(status.length),
                                  Sectors(status.region))))

    def _mark(self, names: Names, source: Placeholder,
              ranges: list[Range]) -> tuple[int, int]:
        """Mark regions.

        :returns: the number of those that are, and of the ranges that are not
        :raises: ProcessExecutionError
        """
        left: collections.abc.Sequence[Any] = [
            [each.first, each.count] for each in ranges]
        marked = vain = 0
        while left and vain < VAIN:
            # Before the lock, which others need.
            with self._turns, self._backend.lock_owner(source):
                if names in self._outages.lost or not _may(names):
                    break
                result = process.Result(**privileged.run(
                    names.name_id, names.of(HANDLE), list(left[:RANGES]),
                    ROUND))
            vain = 0 if result.marked or result.ended == process.DONE else (
                vain + 1)
            marked += result.marked
            left = [*result.left, *left[RANGES:]]
            if result.ended in (process.REFUSED, process.FAILED):
                break
        return marked, len(left)


def _may(names: Names) -> bool:
    """Whether a clone is one that may be marked, by its devices."""
    if not LocalVolume(names).refuses_discards():
        return False
    status = dmsetup.clone(names.of(CLONE))
    return (status is not None and status.healthy and
            not status.hydration and not status.complete and
            not sysfs.is_suspended(names.of(GATE)) and
            sysfs.takes_discards(names.of(CLONE)))
