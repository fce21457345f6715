# SPDX-License-Identifier: Apache-2.0
"""Activation of a clone: open its gate, and have it hydrate from its source.

The source is sealed first. One whose node is lost is ended instead.
"""

import collections.abc
import functools
import threading
import time
from typing import Any

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.builder import Builder
from dmclone_driver.move.bypass import Bypass
from dmclone_driver.move import lookups
from dmclone_driver.move.marks import Marks
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

# Seconds to wait for the old home to seal its copy before a gate opens.
SEAL_TIMEOUT = 3


class Activation:
    """Activates the clones of this node, named after their placeholders."""

    def __init__(self, backend: Backend, builder: Builder, pacer: Pacer,
                 bypass: Bypass, marks: Marks) -> None:
        self._backend = backend
        self._builder = builder
        self._pacer = pacer
        self._bypass = bypass
        self._marks = marks

    def activate(self, context: cinder_context.RequestContext,
                 placeholder_id: str, sealed: bool = False) -> None:
        """Open the gate of a destination after the switchover.

        :param sealed: whether the old home has sealed its copy already
        :raises: MoveGone if there was no switchover, or if the volume is being
            deleted
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is None:
            raise lookups.unknown(placeholder_id)
        volume_id, state = placeholder.volume_id, placeholder.state
        if state == State.RELEASED:
            # The volume is complete on this node already.
            return
        if state not in (State.SWITCHED, State.LOST):
            raise exception.MoveGone(
                volume=volume_id, placeholder=placeholder_id, reason=state)
        names, lost = Names(placeholder_id), state == State.LOST
        with self._backend.mark_busy(names):
            seal = (None if lost or sealed else
                    self._ask_to_seal(context, placeholder))
            with self._backend.lock(volume_id):
                if self._is_reverting(context, placeholder):
                    return
                clone = self._open_passive(context, names, volume_id, seal)
            answers = not lost and (sealed or seal is None or seal())
        if clone:
            self._in_background(names, self._after_opening, context, names,
                                placeholder, lost, answers)

    @staticmethod
    def _is_reverting(context: cinder_context.RequestContext,
                      placeholder: Placeholder) -> bool:
        """Whether a clone has yet to take the place of a volume's data."""
        return bool(placeholder.snapshot_id) and placeholders.state_of(
            lookups.owner_row(context, placeholder.id)) == State.REVERTING

    def _open_passive(self, context: cinder_context.RequestContext,
                      names: Names, volume_id: str,
                      seal: collections.abc.Callable[[], bool] | None
                      ) -> bool:
        """Open the gate of a clone if it is closed, also after a reboot.

        :param seal: as in :meth:`open`
        :returns: whether it is a clone; else it is complete
        """
        # With a closed gate: open() decides who may write, and tags the
        # logical volume first.
        try:
            self._builder.rebuild(names, passive=True)
        except exception.MetadataUnusable:
            # A deletion may have had the lock before.
            owner = lookups.owner_row(context, names.name_id)
            if owner is None or lookups.is_being_deleted(owner):
                raise exception.MoveGone(
                    volume=volume_id, placeholder=names.name_id,
                    reason=_('the volume is being deleted'))
            raise
        clone = LocalVolume(names).is_clone()
        if clone and sysfs.is_suspended(names.of(GATE)):
            owner = lookups.owner_row(context, names.name_id)
            self.open(names, volume_id, writable=(
                owner is not None and
                not placeholders.is_placeholder(owner)), wait=seal)
        return clone

    def open(self, names: Names, volume_id: str, writable: bool = True,
             tagged: bool = False,
             wait: collections.abc.Callable[[], bool] | None = None) -> None:
        """Tag the logical volume as opened, then open its gate.

        The tag survives a loss of the database. It keeps the driver from
        deleting the logical volume as an unused destination.

        :param writable: False if the volume has moved to another node since
        :param tagged: whether the tag is known to be there
        :param wait: waits, between the two, for the old home, which seals its
            copy meanwhile: a guest may wait, and both need a command of LVM
        """
        if not tagged:
            # LVM has each tag once, so it need not be asked before.
            logical_volumes.tag_by_name(
                self._backend.group.vg_name, names.volume,
                logical_volumes.OPENED_TAG + volume_id)
        if wait is not None:
            wait()
        steps.reached(Step.OPENING, names.name_id)
        LocalVolume(names).open_gate(writable)
        steps.reached(Step.OPENED, names.name_id)
        LOG.info('Volume %(volume)s is open%(how)s on %(host)s.',
                 {'volume': volume_id, 'host': self._backend.host,
                  'how': '' if writable else ' for reading'})

    def hydrate(self, context: cinder_context.RequestContext, names: Names,
                placeholder: Placeholder) -> bool:
        """Start the hydration once the old home has sealed the source.

        If it is not its turn, it waits for nothing else afterwards.

        :returns: whether it runs, or the volume was deleted meanwhile; the
            watcher tries again if not
        """
        try:
            sealed = self._connect_sealed(context, names, placeholder)
        except exception.PeerError as error:
            LOG.warning('Hydration of %(names)s waits: %(error)s.',
                        {'names': names, 'error': error.msg})
            self._pacer.give_up(names)
            return False
        if not sealed:
            self._pacer.give_up(names)
            LOG.info('Hydration of %s waits: its source is still open on '
                     'the old home.', names)
            return False
        if not self._marks.make(context, names, placeholder):
            self._pacer.give_up(names)
            return False
        with self._backend.lock_owner(placeholder):
            # Without the lock this could restart a hydration that a
            # concurrent deletion has just stopped.
            if not LocalVolume(names).is_clone():
                self._pacer.give_up(names)
                return True
            if not self._pacer.take_turn(names, placeholder.backend):
                return False
            self._marks.count_all_of(names)
            LocalVolume(names).start_hydration(paced=True)
            steps.reached(Step.HYDRATING, names.name_id)
            LOG.info('Hydration of %s has started.', names)
        return True

    def is_marking(self, names: Names) -> bool:
        """Whether it is being found out what need not be copied."""
        return self._marks.is_undecided(names)

    def _connect_sealed(self, context: cinder_context.RequestContext,
                        names: Names, placeholder: Placeholder) -> bool:
        """Connect a clone, and have the old home seal its source.

        A source that was not written is replaced by its own source.

        :returns: whether it is sealed, and not open
        :raises: PeerUnreachable, PeerFailed
        """
        if not LocalVolume(names).is_connected():
            self._builder.reconnect(context, names, placeholder)
        if not self._backend.client.seal_source(
                context, placeholder.backend, placeholder.id):
            return False
        snapshot = self._bypass.begin(context, placeholder)
        if snapshot:
            self._builder.reconnect(context, names, snapshot, anew=True)
            self._bypass.end(context, placeholder)
            # It may be a source on another node now.
            placeholder.refresh()
        return True

    def end_source(self, context: cinder_context.RequestContext, names: Names,
                   placeholder: Placeholder) -> None:
        """Fail all requests that wait for a source whose node is lost.

        Regions that were copied or written here can be read. Reads of the
        others fail.

        :param placeholder: whose volume is also set to error
        """
        local = LocalVolume(names)
        self._pacer.give_up(names)
        with self._backend.lock_owner(placeholder):
            if local.is_clone():
                self._backend.initiator.cut(placeholder.provider_location)
                local.fail_without_source()
                local.stop_hydration()
        records.fail(context, placeholder.volume_id)

    def _ask_to_seal(self, context: cinder_context.RequestContext,
                     placeholder: Placeholder
                     ) -> collections.abc.Callable[[], bool]:
        """Ask the old home to refuse writes before the gate opens here.

        Best effort: its node may be dead, and a guest waits at the gate. Use
        a thread, because a call to a message bus that is down exceeds its
        timeout.

        :returns: a function that waits for the answer, at most until
            :data:`SEAL_TIMEOUT` is over, and returns whether there was one
        """
        host, until = placeholder.backend, time.monotonic() + SEAL_TIMEOUT
        answers: list[str | None] = []

        def ask() -> None:
            try:
                self._backend.client.seal_source(context, host, placeholder.id,
                                                 timeout=SEAL_TIMEOUT)
                answers.append(None)
            except exception.PeerError as error:
                answers.append(error.msg)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()

        @functools.cache
        def answered() -> bool:
            thread.join(max(0, until - time.monotonic()))
            error, = answers or ['no answer']
            if error:
                self._warn_unsealed(placeholder, error)
            return not error

        return answered

    @staticmethod
    def _warn_unsealed(placeholder: Placeholder, error: str) -> None:
        LOG.warning('Opening volume %(volume)s although its old home %(host)s '
                    'has not confirmed that it refuses writes: %(error)s. By '
                    'the database this node is the home.',
                    {'volume': placeholder.volume_id,
                     'host': placeholder.backend, 'error': error})

    def _in_background(self, names: Names,
                       function: collections.abc.Callable[..., None],
                       *args: Any) -> None:
        """Do what no request waits for, as a job of the clone.

        A clone has one job at a time. If it has one, such as the watcher's
        that has called this, it is done before this returns.
        """
        if self._backend.jobs.at_work(names):
            function(*args)
        else:
            self._backend.jobs.start(names, function, *args)

    def _after_opening(self, context: cinder_context.RequestContext,
                       names: Names, placeholder: Placeholder, lost: bool,
                       answers: bool) -> None:
        """Start the hydration; if this is killed, the watcher does it.

        :param answers: whether the old home has sealed the source
        """
        with self._backend.mark_busy(names):
            if lost:
                self.end_source(context, names, placeholder)
            # What is to be marked first would take too long; the watcher has
            # it done.
            elif answers and not self._marks.are_due(names):
                self.hydrate(context, names, placeholder)
