# SPDX-License-Identifier: Apache-2.0
"""Turn a complete clone into a linear handle and release its source."""

from cinder import context as cinder_context
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver.move.backend import Backend
from dmclone_driver.move import events
from dmclone_driver.move import follower_records
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move.messages import Troubles
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)


class Completion:
    """Complete clones of this node."""

    def __init__(self, backend: Backend, teardown: Teardown,
                 requests: PeerRequests, troubles: Troubles) -> None:
        self._backend = backend
        self._jobs = backend.jobs
        self._teardown = teardown
        self._requests = requests
        self._troubles = troubles
        #: Names of complete clones whose cleanup has not finished.
        self.unfinished = backend.jobs.kind('clear up clone',
                                            self.finish_again)

    def complete(self, context: cinder_context.RequestContext,
                 names: Names) -> None:
        """Turn a complete clone into a linear handle; release its source."""
        volume_id = self._volume_id(context, names)
        with self._backend.lock(volume_id):
            clone = names.of(names_module.CLONE)
            status = dmsetup.clones(clone).get(clone)
            if status is None or not status.complete:
                return
            lv = self._backend.logical_volume(names)
            # A clone's gate lies on it.
            assert lv is not None
            if not self._is_known(context, names, lv, volume_id):
                return
            try:
                if not LocalVolume(names).make_linear(lv):
                    return
            except Exception:
                with excutils.save_and_reraise_exception():
                    # The handle may be linear in spite of the error, and
                    # the volume then has no clone any longer.
                    row = lookups.owner_row(context, names.name_id)
                    if row is not None:
                        self._jobs.add('recover', row.id, row)
            steps.reached(Step.LINEAR, names.name_id)
            self.unfinished.add(names)
            self.finish(context, names)
        LOG.info('Volume %(volume)s is complete on %(host)s.',
                 {'volume': volume_id, 'host': self._backend.host})

    @staticmethod
    def _volume_id(context: cinder_context.RequestContext,
                   names: Names) -> str:
        """Return the id of the volume whose lock protects a clone."""
        placeholder = lookups.placeholder(context, names.name_id)
        return names.name_id if placeholder is None else placeholder.volume_id

    def _is_known(self, context: cinder_context.RequestContext, names: Names,
                  lv: logical_volumes.LogicalVolume,
                  locked: str | None) -> bool:
        """Whether the database knows the switchover of a clone's move.

        If not, the database was restored or has lost its last transactions.
        The clone's source and metadata are kept until it is up to date. A
        missing row is normal once the clone is cleaned up.

        :param lv: the clone's logical volume
        :param locked: id of the volume whose lock is held. If Cinder has
            copied that elsewhere, the clone may belong to the row that is
            deleted by now (:func:`row_repairs.take_over`): False then. None if
            the lock is that of the clone's own row
        """
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is not None and locked not in (
                None, placeholder.volume_id):
            return False
        state = placeholder.state if placeholder else None
        if state in placeholders.OF_SOURCES or (
                placeholder is None and self._is_cleared_up(names, lv)):
            return True
        self._troubles.say(
            context, names, 'unknown', 'Volume %(volume)s is complete in '
            'logical volume %(lv)s, but its move %(name)s is %(state)s '
            'in the database, which was restored or has lost its last '
            'transactions. The source and the metadata are kept until the '
            'database is up to date; run dmclone-reconcile for details.',
            {'volume': lv.tagged(logical_volumes.OPENED_TAG), 'lv': lv.path,
             'name': names.name_id, 'state': state or 'unknown'})
        return False

    def _is_cleared_up(self, names: Names,
                       lv: logical_volumes.LogicalVolume) -> bool:
        """Whether a clone's devices and metadata are removed already."""
        return not (lv.clone or
                    dmsetup.devices(names.of(GATE),
                                    names.of(names_module.SOURCE)) or
                    self._backend.metadata.find(names))

    def finish_again(self, context: cinder_context.RequestContext) -> None:
        """Repeat the cleanup of the clones for which it has failed."""
        for names in list(self.unfinished):
            try:
                volume_id = self._volume_id(context, names)
                with self._backend.lock(volume_id):
                    if names in self.unfinished:
                        self.finish(context, names, volume_id)
            except Exception:
                LOG.exception('Cleanup after hydration of %s failed; it is '
                              'tried again.', names)

    def finish(self, context: cinder_context.RequestContext,
               names: Names, locked: str | None = None) -> None:
        """Remove the devices, metadata and source of a complete clone.

        Can be repeated after a crash at any point: a tag is set before the
        first removal and removed after the last.

        :param locked: see :meth:`_is_known`
        """
        lv = self._backend.logical_volume(names)
        placeholder = lookups.placeholder(context, names.name_id)
        if lv is None:
            self.unfinished.discard(names)
            return
        if not self._is_known(context, names, lv, locked):
            self.unfinished.add(names)
            return
        # Flush before the source and the metadata are removed.
        block.flush_disk(names.path())
        logical_volumes.retag(lv, logical_volumes.METADATA_TAG,
                              logical_volumes.COMPLETE_TAG)
        steps.reached(Step.COMPLETE, names.name_id)
        self._teardown.remove_devices(names, placeholder,
                                      names_module.GATE, names_module.SOURCE)
        self._teardown.forget_metadata(names)
        if follower_records.get(context, names.name_id) is not None:
            # Its source is released once it is the snapshot.
            self._jobs.add(jobs.SETTLE_FOLLOWER, names)
        elif placeholder is not None:
            self._requests.release(context, placeholder)
            self._tell(placeholder)
        logical_volumes.untag(
            lv, logical_volumes.COMPLETE_TAG,
            *(tag for tag in lv.tags if tag.startswith((
                logical_volumes.CLONED_TAG, logical_volumes.REVERTED_TAG,
                *logical_volumes.THIN_CLONE_TAGS))))
        self.unfinished.discard(names)
        self._troubles.forget(names)
        # Its volume may be deleted.
        self._jobs.hurry(jobs.WATCH_DELETED, names)

    def _tell(self, placeholder: Placeholder) -> None:
        """Tell that a copy has ended, unless that was done before a crash.

        :param placeholder: of the source, as it was before its release
        """
        if placeholder.state != State.RELEASED:
            events.tell(events.Event(
                events.Kind.END, placeholder.volume_id, placeholder.id,
                placeholder.host, self._backend.host,
                placeholder.snapshot_id))
