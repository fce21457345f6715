# SPDX-License-Identifier: Apache-2.0
"""Watching the iSCSI sessions to the sources of this node's clones.

While a session is lost, requests wait in the queue of its disk. If the queue
is full, a thread that submits one more request sleeps until the source is
back. With QEMU's native I/O this is the thread that serves all disks of a
guest and its monitor.
"""

import threading
import time

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import counts
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE

LOG = logging.getLogger(__name__)

# Seconds between two checks while there is a clone.
INTERVAL = 1


class Outages:
    """A thread that detects lost iSCSI sessions.

    A check reads sysfs. It starts no process and no query.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = backend.jobs
        #: Names of the clones whose session is lost.
        self.lost: set[Names] = set()
        #: Those of them to which requests are held back.
        self.held: set[Names] = set()

    def start(self) -> None:
        """Start the thread; it has no stop, as services have no shutdown."""
        threading.Thread(target=self._run, daemon=True,
                         name='dmclone-outages').start()

    def _run(self) -> None:
        while True:
            pause: float = jobs.RETRY_WAITING
            try:
                pause = self.look()
            except Exception:
                LOG.exception('Checking the iSCSI sessions failed; the '
                              'next try is in %d seconds.', pause)
            time.sleep(pause)

    def look(self) -> float:
        """Check all sessions once; report and handle the lost ones.

        :returns: seconds until the next check
        """
        present = {parsed[0] for parsed in map(names_module.parse,
                                               sysfs.devices())
                   if parsed and parsed[1] == SOURCE}
        for names in present:
            try:
                self._look_at(names)
            except FileNotFoundError:
                # The source shim has just been removed.
                continue
            except Exception:
                LOG.exception('Checking the iSCSI session of %s failed; it '
                              'is tried again.', names)
        for names in self.lost - present:
            self._forget(names)
        self._ask()
        return (INTERVAL if present else
                self._backend.configuration.dmclone_check_interval)

    def _look_at(self, names: Names) -> None:
        shim = names.of(SOURCE)
        disks = sysfs.disks_below(shim)
        if disks and sysfs.is_suspended(shim):
            # A process was killed between a suspend and its resume. A shim
            # without a disk is not connected yet: see Builder.reconnect.
            dmsetup.resume(shim)
        if not any(map(self._backend.initiator.is_lost, disks)):
            if names in self.lost:
                LOG.info('The iSCSI session of %s is back or has ended.',
                         names)
                self._forget(names)
            return
        if names not in self.lost:
            self.lost.add(names)
            LOG.warning('The iSCSI session of %s to its source is lost. '
                        'Requests that need the source wait.', names)
        if sysfs.in_flight(shim):
            dmsetup.hold(shim)
            if names not in self.held:
                self.held.add(names)
                counts.HOLDS.inc()

    def _forget(self, names: Names) -> None:
        self.lost.discard(names)
        self.held.discard(names)
        self._jobs.pauses.forget(names)

    @staticmethod
    def reads_wait(names: Names) -> bool:
        """Whether requests wait for a clone's source.

        Its session may be lost although the kernel has not noticed yet.
        """
        return sysfs.in_flight(names.of(SOURCE)) > 0

    def _ask(self) -> None:
        """Ask for the sources of lost sessions, in the background."""
        if self._jobs.at_work('lost sources'):
            return
        due = [names for names in self.lost
               if self._jobs.pauses.due(names, jobs.RETRY_WAITING)]
        if due:
            self._jobs.start('lost sources', self._ask_for, due)

    def _ask_for(self, due: list[Names]) -> None:
        """Ask the nodes of sources to export them again.

        A restarted target service admits no initiator until its node's
        driver has exported the source again. A node that does not answer is
        not asked again in this run.
        """
        context = cinder_context.get_admin_context()
        silent: set[str] = set()
        for names in due:
            row = lookups.source_row(context, names.name_id)
            host = row and lookups.backend_of(row)
            if not host or host in silent:
                continue
            try:
                self._backend.client.export_source(context, host,
                                                   names.name_id)
            except exception.PeerUnreachable as error:
                silent.add(host)
                self._log_not_served(names, error)
            except exception.PeerFailed as error:
                self._log_not_served(names, error)

    @staticmethod
    def _log_not_served(names: Names, error: exception.PeerError) -> None:
        LOG.warning('The source of %(names)s is not exported: %(error)s.',
                    {'names': names, 'error': error.msg})
