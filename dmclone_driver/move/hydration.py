# SPDX-License-Identifier: Apache-2.0
"""The background copy: started, looked after, and started again."""

import dataclasses

from oslo_log import log as logging

from dmclone_driver.move import jobs
from dmclone_driver.move import records
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import devices
from dmclone_driver.node import names as names_module

LOG = logging.getLogger(__name__)

# Seconds without any progress after which a clone's source is asked for.
STALLED = 60


@dataclasses.dataclass(frozen=True)
class _Progress:
    """What was seen of a clone since it has added no region."""

    hydrated: int
    since: float
    #: How many requests its guest had made until then.
    requests: int
    #: Whether copies were under way at each look.
    copying: bool = True


class Hydration:
    """Clones of this node that copy, or should."""

    def __init__(self, backend, destination, outages, troubles):
        self._backend = backend
        self._jobs = backend.jobs
        self._pauses = backend.jobs.pauses
        self._destination = destination
        self._outages = outages
        self._troubles = troubles
        #: How far clones have come: {names: _Progress}.
        self._progress = {}
        #: The same of those that copy one by one: {names: (regions, time)}.
        self._one_by_one = {}

    def start(self, context, names):
        if names in self._outages.lost:
            # Copies would wait, and a guest's writes to the same regions.
            return 'waiting'
        last = (jobs.RETRY_LAST if devices.is_connected(names) else
                jobs.RETRY_WAITING)
        if not self._pauses.due('h' + names.name_id, last):
            return 'waiting'
        source = records.placeholder(context, names.name_id)
        if source is None:
            LOG.error('The database has no source of %s.', names)
            return 'sick'
        self._jobs.start(names.name_id, self._start_hydration, context,
                         names, source)
        return 'waiting'

    def _start_hydration(self, context, names, source):
        status = dmsetup.clone(names.of(names_module.HANDLE))
        # Or a request has seen to it since the look at all clones.
        if status is None or status.hydration:
            return
        if not (self._may_be_asked(context, names, source) and
                self._destination.hydrate(context, names, source)):
            # What can't be read then is not a matter of single regions.
            self._copy_in_batches(names, status)

    def _may_be_asked(self, context, names, source):
        """Whether the node of a source may answer.

        One that is back has the hydration started by itself, see
        Recovery. From one that is lost nothing waits any more afterwards.
        """
        if records.state(source) == records.LOST:
            self._destination.end_source(context, names, source)
            return False
        return self._backend.is_up(context, records.backend_of(source))

    def look(self, context, names, status):
        """See to a clone to which nothing has come for some time.

        While a guest's request is under way the kernel begins no copy
        (do_hydration in drivers/md/dm-clone-target.c): that alone is no
        reason to do anything.
        """
        self._see_batches(names, status)
        now = self._pauses.now()
        requests = sysfs.requests(names.of(names_module.HANDLE))
        fresh = _Progress(status.hydrated, now, requests)
        last = self._progress.get(names)
        if last is None or last.hydrated != status.hydrated:
            self._progress[names] = fresh
            self._troubles.forget(names)
            self._pauses.forget('h' + names.name_id)
            return
        copying = last.copying and bool(status.hydrating)
        if now - last.since < STALLED:
            self._progress[names] = dataclasses.replace(last, copying=copying)
            return
        self._progress[names] = fresh
        if copying or requests == last.requests or not status.hydration:
            self._jobs.start('s' + names.name_id, self._stalled, context,
                             names, status)
        else:
            LOG.debug('Hydration of %s made no progress: its guest is busy.',
                      names)

    def _see_batches(self, names, status):
        """Copy in batches again where single regions have been copied."""
        if status.batch == self._batch(status):
            self._one_by_one.pop(names, None)
            return
        now = self._pauses.now()
        hydrated, since = self._one_by_one.setdefault(
            names, (status.hydrated, now))
        if now - since >= STALLED:
            self._one_by_one[names] = status.hydrated, now
            if status.hydrated != hydrated:
                self._copy_in_batches(names, status)

    def _copy_in_batches(self, names, status):
        if status.batch != self._batch(status):
            devices.copy_in_batches(names, self._batch(status))

    def _batch(self, status):
        return self._backend.tuning.in_regions(status.region)[1]

    def _stalled(self, context, names, status):
        """Have a source served again, and tell the user."""
        source = records.placeholder(context, names.name_id)
        if source is None:
            return
        self._troubles.say(
            context, names, 'stalled', 'Volume %(volume)s makes no progress: '
            'what it needs from %(host)s does not come, or cannot be written '
            'here.',
            {'volume': records.volume_of(source), 'host': source.host})
        if records.state(source) == records.LOST:
            self._destination.end_source(context, names, source)
        elif status.hydration:
            # It is started again, ever less often: while it tries to copy
            # what can't be read, a guest can't overwrite that either.
            devices.stop_hydration(names)
            self._pauses.due('h' + names.name_id)
            if self._backend.is_up(context, records.backend_of(source)):
                self._destination.ask_for_source(context, source)
                # It answers: perhaps some blocks can't be read.
                devices.copy_one_by_one(names)

    def forget(self, names):
        """Keep nothing about what is no clone any more."""
        self._pauses.forget('h' + names.name_id)
        self._progress.pop(names, None)
        self._one_by_one.pop(names, None)
