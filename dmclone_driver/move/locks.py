# SPDX-License-Identifier: Apache-2.0
"""Locks of volumes, on any backend of Cinder's coordination."""

import collections.abc
import contextlib
import threading
from typing import Any

from cinder import context as cinder_context
from cinder import coordination
from oslo_concurrency import lockutils
from oslo_log import log as logging
from oslo_utils import timeutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import counts
from dmclone_driver.move.jobs import Jobs
from dmclone_driver.move.jobs import Kind

LOG = logging.getLogger(__name__)

# Seconds that a request waits at its end for the release of its lock.
RELEASE_TIMEOUT = 2

# Seconds from which on the time that a lock was waited for, or held, is logged
# at the level info.
LONG = 5

# Semaphores between the threads of this process. Unused ones are not kept.
_SEMAPHORES = lockutils.Semaphores()


class Locks:
    """The locks of the volumes on one backend.

    Each is a semaphore, and then a lock of Cinder's coordination. The latter
    can be lost while it is held: with etcd it is a lease of 30 seconds, which
    tooz renews as long as etcd answers and the process runs. The holder
    learns of the loss only from the answer to the release. The semaphore
    still excludes other threads. Between cinder-volume and dmclone-reconcile
    on one node the database decides: a row is created first and deleted
    last, each change of it is a compare-and-set, and dmclone-reconcile
    removes nothing that belongs to a row.
    """

    def __init__(self, host: str, jobs: Jobs) -> None:
        self._host = host
        #: Locks that are not released yet, {volume id: tooz's lock}. Tooz
        #: renews them like those that are held.
        self.unreleased: Kind[str, Any] = jobs.kind('release lock',
                                                    self.release_again)

    @contextlib.contextmanager
    def hold(self, volume_id: str, timeout: float | None = None
             ) -> collections.abc.Iterator[None]:
        """Hold the lock of a volume; see Backend.lock."""
        # The name includes the host, because all nodes may share one
        # coordination service.
        name = 'dmclone-%s-%s' % (self._host, volume_id)
        limit = None if timeout is None else max(0, timeout)
        watch = timeutils.StopWatch(limit).start()
        semaphore = _SEMAPHORES.get(name)
        with counts.LOCKS_WAITING.track_inprogress():
            if not semaphore.acquire(timeout=limit):
                raise self._not_in_time(volume_id, timeout)
        try:
            with counts.LOCKS_WAITING.track_inprogress():
                lock = self._acquire(volume_id, name, timeout, watch)
            counts.LOCK_WAIT.observe(watch.elapsed())
            self._log_time('acquired after', volume_id, watch.elapsed())
            held = timeutils.StopWatch().start()
            try:
                yield
            finally:
                counts.LOCK_HELD.observe(held.elapsed())
                self._log_time('held for', volume_id, held.elapsed())
                self._release(volume_id, lock)
        finally:
            semaphore.release()

    @staticmethod
    def _log_time(what: str, volume_id: str, seconds: float) -> None:
        """Log how long a request has waited for, or held, a lock."""
        LOG.log(logging.DEBUG if seconds < LONG else logging.INFO,
                'The lock of volume %(volume)s was %(what)s %(seconds).1f '
                'seconds.', {'volume': volume_id, 'what': what,
                             'seconds': seconds})

    def _acquire(self, volume_id: str, name: str, timeout: float | None,
                 watch: timeutils.StopWatch) -> Any:
        """Acquire and return tooz's lock; the caller holds the semaphore."""
        old = self.unreleased.get(volume_id)
        if old is not None and not self._release(volume_id, old):
            raise self._unreachable(volume_id)
        left = watch.leftover(return_none=True)
        try:
            lock = coordination.COORDINATOR.get_lock(name)
            # A number is the time to wait. The argument timeout has that
            # meaning only with some backends. With etcd it is the length of
            # the lease.
            acquired = lock.acquire(True if left is None else left)
        except Exception as error:
            LOG.warning('The lock of volume %(volume)s could not be acquired: '
                        '%(error)r.', {'volume': volume_id, 'error': error})
            # With some backends tooz raises if the time is over.
            if left is not None and watch.expired():
                raise self._not_in_time(volume_id, timeout) from error
            raise self._unreachable(volume_id) from error
        if not acquired:
            raise self._not_in_time(volume_id, timeout)
        return lock

    def _release(self, volume_id: str, lock: Any) -> bool:
        """Release tooz's lock; a failure does not fail the request.

        Use a thread, because an unreachable service answers late and the
        caller of the request waits.

        :returns: whether tooz's lock is released
        """
        self.unreleased[volume_id] = lock
        try:
            thread = threading.Thread(target=self._do_release, daemon=True,
                                      args=(volume_id, lock))
            thread.start()
            thread.join(RELEASE_TIMEOUT)
        except Exception:
            LOG.exception('The lock of volume %s is not released yet; that is '
                          'tried again.',
                          volume_id)
        return self.unreleased.get(volume_id) is not lock

    def _do_release(self, volume_id: str, lock: Any) -> None:
        try:
            if not lock.release():
                LOG.warning('The lock of volume %s was lost before it was '
                            'released.', volume_id)
        except Exception as error:
            LOG.error('The lock of volume %(volume)s could not be released: '
                      '%(error)r. That is tried again.',
                      {'volume': volume_id, 'error': error})
        else:
            if self.unreleased.get(volume_id) is lock:
                del self.unreleased[volume_id]

    def release_again(
            self, context: cinder_context.RequestContext | None = None
    ) -> None:
        """Try to release the locks that could not be released."""
        for volume_id in list(self.unreleased):
            try:
                with self.hold(volume_id, timeout=0):
                    LOG.info('The lock of volume %s is released now.',
                             volume_id)
            except exception.LockNotAcquired as error:
                LOG.debug(error.msg)

    @staticmethod
    def _not_in_time(volume_id: str,
                     timeout: float | None) -> exception.LockNotAcquired:
        counts.LOCK_FAILURES.labels(counts.LockFailure.TIMEOUT.value).inc()
        return exception.LockNotAcquired(volume=volume_id, reason=_(
            'its lock was not free within %s seconds, because another request '
            'holds it or the coordination service is slow') % timeout)

    @staticmethod
    def _unreachable(volume_id: str) -> exception.LockNotAcquired:
        counts.LOCK_FAILURES.labels(
            counts.LockFailure.UNREACHABLE.value).inc()
        return exception.LockNotAcquired(volume=volume_id, reason=_(
            'its lock could not be acquired from the coordination service '
            '(backend_url in section [coordination])'))
