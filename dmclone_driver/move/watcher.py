# SPDX-License-Identifier: Apache-2.0
"""Watching the clones of this node, and completing them.

One look at the kernel tells everything, however many volumes there are:
where no clone is, it costs one process and no query.
"""

import dataclasses
import threading
import time

from cinder import context as cinder_context
from cinder.message import message_field
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.move import attachments
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import jobs
from dmclone_driver.move import records
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import devices
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import GATE
from dmclone_driver.privsep import block
from dmclone_driver.privsep import events
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

# Seconds between two looks while a write may be waiting at a gate.
GATE_INTERVAL = 0.25
# The longest pause between two looks at a gate at which a write waits.
RETRY_WRITE = 2
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


class Watcher:
    """A thread that looks after this backend's clones."""

    def __init__(self, backend, source, destination, home, teardown,
                 requests, outages):
        self._backend = backend
        self._source = source
        self._destination = destination
        self._home = home
        self._teardown = teardown
        self._requests = requests
        self._outages = outages
        self._jobs = backend.jobs
        self._pauses = backend.jobs.pauses
        self._reported = {}
        #: Names of the clones of the last look.
        self._seen = set()
        #: How far clones have come: {names: _Progress}.
        self._progress = {}
        #: The same of those that copy one by one: {names: (regions, time)}.
        self._one_by_one = {}
        #: Volumes that are complete, but whose clone is not yet cleared up.
        self.unfinished = backend.jobs.kind('clear up clone',
                                            self.finish_again)
        self._interval = backend.configuration.dmclone_check_interval

    def start(self):
        """Start to watch; there is no stop, as services have no shutdown."""
        threading.Thread(target=self._run, daemon=True,
                         name='dmclone-watcher').start()

    def _run(self):
        while True:
            interval = self._interval
            try:
                interval = self.look()
            except Exception:
                LOG.exception('Looking at the clones failed; the next try '
                              'is in %d seconds.', interval)
            try:
                # Building a clone raises a row of events; one look is
                # enough for all of them.
                time.sleep(min(interval, jobs.RETRY_FIRST))
                events.wait(interval)
            except Exception:
                LOG.exception('Waiting for device-mapper events failed.')
                time.sleep(interval)

    def look(self):
        """Look at all clones once and do what is due.

        :returns: seconds until the next look, unless there is an event
        """
        devices.resume_left()
        context = cinder_context.get_admin_context()
        passive, waiting, present = False, False, set()
        for device, status in dmsetup.clones().items():
            parsed = names_module.parse(device)
            if not parsed:
                continue
            present.add(parsed[0])
            if parsed[0] in self._destination.busy:
                continue
            try:
                state = self._look_at(context, parsed[0], status)
            except Exception:
                LOG.exception('Clone %s needs another look.', device)
                state = 'waiting'
            passive |= state == 'passive'
            waiting |= state == 'waiting'
        for names in self._seen - present:
            self._forget(names)
        self._seen = present
        self._jobs.look(context)
        if passive:
            return GATE_INTERVAL
        return jobs.RETRY_FIRST if waiting else self._interval

    def _look_at(self, context, names, status):
        """Do what is due for one clone; returns what it is waiting for."""
        if sysfs.is_suspended(names.of(GATE)):
            return self._look_at_passive(context, names, status)
        if not status.healthy:
            self._report_metadata(context, names, status)
            return 'sick'
        if status.complete:
            if self._outages.reads_wait(names):
                # So would the suspend, and all that comes during that.
                return 'waiting'
            self._jobs.start(names.name_id, self._complete, context, names)
            return 'complete'
        self._see_progress(context, names, status)
        return ('hydrating' if status.hydration else
                self._hydrate(context, names))

    def _look_at_passive(self, context, names, status):
        """See whether a passive clone has to be opened or thrown away."""
        due = (self._pauses.due('w' + names.name_id, RETRY_WRITE)
               if status.written else
               self._pauses.due(names.name_id, jobs.RETRY_WAITING))
        if not due:
            return 'passive'
        placeholder = records.placeholder(context, names.name_id)
        if placeholder is None:
            return 'passive'
        state = records.state(placeholder)
        if state == records.ABORTED:
            self._jobs.start(names.name_id, self._delete_destination,
                             context, placeholder)
            return 'passive'
        if not status.healthy:
            self._report_metadata(context, names, status)
            return 'sick'
        if state == records.PREPARED and status.written:
            state = self._take_write(context, names, placeholder)
        if state in (records.SWITCHED, records.LOST):
            self._jobs.start(names.name_id, self._activate, context, names)
        return 'passive'

    def _delete_destination(self, context, placeholder):
        if self._destination.delete(context, placeholder.id):
            self._requests.forget_destination(context, placeholder)
            self._forget_passive(names_module.Names(placeholder.id))

    def _activate(self, context, names):
        self._destination.activate(context, names.name_id)
        self._forget_passive(names)

    def _forget_passive(self, names):
        self._pauses.forget(names.name_id)
        self._pauses.forget('w' + names.name_id)

    def _forget(self, names):
        """Keep nothing about what is no clone any more."""
        self._forget_passive(names)
        self._pauses.forget('h' + names.name_id)
        self._reported.pop(names.name_id, None)
        self._progress.pop(names, None)
        self._one_by_one.pop(names, None)

    def _take_write(self, context, names, placeholder):
        """Take a write that waits for the sign that the guest has come.

        :returns: the state of the move afterwards
        """
        status = dmsetup.clone(names.of(names_module.HANDLE))
        if status is None or not status.written:
            # The kernel counts its own idle looks, too, for a moment
            # (do_hydration in drivers/md/dm-clone-target.c).
            return records.PREPARED
        volume_id = records.volume_of(placeholder)
        volume = records.get(context, volume_id)
        if volume is not None and attachments.under_way(
                volume, records.record(placeholder).node):
            return self._refuse_write(context, names, placeholder)
        try:
            records.switch_over(context, volume_id, placeholder.id)
        except exception.MoveGone as error:
            LOG.error('A write waits for clone %(name)s, but %(error)s',
                      {'name': placeholder.id, 'error': error.msg})
            return records.PREPARED
        return records.SWITCHED

    def _refuse_write(self, context, names, placeholder):
        """End a move whose destination was written too early.

        Even if the guest comes: it may have changed since, on the old home,
        what dm-clone has read from there for this write.

        :returns: the state of the move afterwards
        """
        volume_id = records.volume_of(placeholder)
        LOG.error('Somebody writes to %(device)s, the destination of volume '
                  '%(volume)s, before it is attached here: that is no '
                  'instance. The write fails, the move is aborted, and '
                  'the volume stays where it is.',
                  {'device': names.path(), 'volume': volume_id})
        if not records.abort(context, volume_id, placeholder.id):
            return records.SWITCHED
        self._jobs.start(names.name_id, self._delete_destination, context,
                         placeholder)
        return records.ABORTED

    def _hydrate(self, context, names):
        if names in self._outages.lost:
            # Copies would wait, and a guest's writes to the same regions.
            return 'waiting'
        last = (jobs.RETRY_LAST if devices.is_connected(names) else
                jobs.RETRY_WAITING)
        if not self._pauses.due('h' + names.name_id, last):
            return 'waiting'
        source = records.placeholder(context, names.name_id)
        if source is None:
            LOG.error('Clone %s has no source on record.', names.name_id)
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

    def _see_progress(self, context, names, status):
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
            self._reported.pop(names.name_id, None)
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
            LOG.debug('Clone %s has copied nothing: its guest is busy.',
                      names.name_id)

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
        self._report(
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

    def _complete(self, context, names):
        """Turn a complete clone into a linear handle; its source goes."""
        volume_id = self._volume_id(context, names)
        with self._backend.lock(volume_id):
            status = dmsetup.clones().get(names.of(names_module.HANDLE))
            if status is None or not status.complete:
                return
            lv = self._backend.logical_volume(names)
            if not self._is_known(context, names, lv):
                return
            try:
                if not devices.make_linear(names, lv):
                    return
            except Exception:
                with excutils.save_and_reraise_exception():
                    # It may be linear all the same, and is no clone then.
                    row = records.owner_row(context, names.name_id)
                    self._jobs.add('recover', row.id, row)
            steps.reached(Step.LINEAR, names.name_id)
            self.unfinished.add(names)
            self.finish(context, names)
        LOG.info('Volume %(volume)s is complete on %(host)s.',
                 {'volume': volume_id, 'host': self._backend.host})

    @staticmethod
    def _volume_id(context, names):
        """Return the id of the volume whose lock guards a clone."""
        source = records.placeholder(context, names.name_id)
        return names.name_id if source is None else records.volume_of(source)

    def _is_known(self, context, names, lv):
        """Whether the database knows the move that a clone has come from.

        If not it has been restored, or has lost its last transactions, and
        all that the clone needed is kept until it knows. A row that is gone
        is nothing unusual where nothing else is left.

        :param lv: the clone's logical volume
        """
        source = records.placeholder(context, names.name_id)
        state = records.state(source)
        if state in (records.SWITCHED, records.RELEASED,
                     records.LOST) or (
                source is None and self._is_cleared_up(names, lv)):
            return True
        self._report(
            context, names, 'unknown', 'Volume %(volume)s is complete in '
            'logical volume %(lv)s, but its move %(name)s is %(state)s '
            'in the database, which was restored or has lost its last '
            'transactions. What the clone needed is kept until the database '
            'is up to date; dmclone-reconcile says more.',
            {'volume': lv.tagged(logical_volumes.OPENED_TAG), 'lv': lv.path,
             'name': names.name_id, 'state': state or 'unknown'})
        return False

    def _is_cleared_up(self, names, lv):
        """Whether a clone has got as far as the release of its source."""
        return not (lv.clone or
                    dmsetup.device(names.of(GATE)) or
                    dmsetup.device(names.of(names_module.SOURCE)) or
                    self._backend.metadata.find(names))

    def finish_again(self, context):
        """Clear up after the clones for which that has failed."""
        for names in list(self.unfinished):
            try:
                with self._backend.lock(self._volume_id(context, names)):
                    if names in self.unfinished:
                        self.finish(context, names)
            except Exception:
                LOG.exception('What clone %s needed is still there.',
                              names.name_id)

    def finish(self, context, names):
        """Remove what a volume that has become complete does not need.

        Can be repeated after a crash at any point: the tag says that it
        has begun, and goes last.
        """
        lv = self._backend.logical_volume(names)
        source = records.placeholder(context, names.name_id)
        if lv is None:
            self.unfinished.discard(names)
            return
        if not self._is_known(context, names, lv):
            self.unfinished.add(names)
            return
        # Nothing that could still be needed goes before this.
        block.flush_disk(names.path())
        logical_volumes.retag(lv, logical_volumes.METADATA_TAG,
                              logical_volumes.COMPLETE_TAG)
        steps.reached(Step.COMPLETE, names.name_id)
        self._teardown.remove_devices(names, source,
                                      names_module.GATE, names_module.SOURCE)
        self._teardown.forget_metadata(names)
        if source is not None:
            self._requests.release(context, source)
        logical_volumes.untag(lv.group, lv.name,
                              logical_volumes.COMPLETE_TAG)
        self.unfinished.discard(names)
        self._forget(names)

    def _report_metadata(self, context, names, status):
        self._report(
            context, names, status.mode, 'The metadata of clone %(name)s is '
            'in mode %(mode)s: its device has failed or is full. Nothing is '
            'lost, but writes fail until it works again and the node has been '
            'restarted.', {'name': names.name_id, 'mode': status.mode})

    def _report(self, context, names, trouble, text, values):
        """Say once, in the log and to the user, that a clone is in trouble.

        :param trouble: what is said once, until the clone goes on
        """
        if self._reported.get(names.name_id) == trouble:
            return
        self._reported[names.name_id] = trouble
        LOG.error(text, values)
        volume = records.owner_row(context, names.name_id)
        if volume is not None and not records.is_placeholder(volume):
            backend_module.tell_user(
                volume, detail=message_field.Detail.VOLUME_INVALID_STATE)
