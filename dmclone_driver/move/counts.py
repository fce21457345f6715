# SPDX-License-Identifier: Apache-2.0
"""What this process has counted since its start, for metrics.

Counting costs next to nothing, so it is not an option. A process has one
backend of this driver, so the counters are those of the backend.
"""

import collections.abc
import contextlib
import enum
import logging
import time

import prometheus_client

import dmclone_driver
from dmclone_driver import exception
from dmclone_driver.move import events

# Seconds: an answer of the same node, a short and a long wait, and the default
# limits of a request to a peer and of one of the API.
_SECONDS = (0.01, 0.1, 1, 5, 20, 60)

REGISTRY = prometheus_client.CollectorRegistry()


class Call(enum.StrEnum):
    """How a call to a peer has ended."""

    ANSWERED = 'answered'
    #: The peer has answered with an error.
    FAILED = 'failed'
    #: There was no answer in time.
    UNREACHABLE = 'unreachable'
    #: Its driver does not know the call.
    TOO_OLD = 'too_old'


class LockFailure(enum.StrEnum):
    """Why a lock was not acquired."""

    #: Another request held it, or the store was slow.
    TIMEOUT = 'timeout'
    #: The store of the locks has failed.
    UNREACHABLE = 'unreachable'


class Error(enum.StrEnum):
    """What has logged an error, by the part of the driver."""

    #: A background job.
    JOB = 'job'
    #: A check of the clones, their sessions, or the prepared moves.
    CHECK = 'check'
    #: A clone that needs help: no progress, metadata, or an unknown move.
    TROUBLE = 'trouble'
    #: The answer to a peer's request.
    ANSWER = 'answer'
    #: A lock that could not be released.
    LOCK = 'lock'
    #: A notification that is lost.
    NOTIFICATION = 'notification'
    OTHER = 'other'


#: The kind of error of each module that has one of its own.
_MODULES = {'jobs': Error.JOB, 'watcher': Error.CHECK,
            'outages': Error.CHECK, 'home': Error.CHECK,
            'messages': Error.TROUBLE, 'rpcapi': Error.ANSWER,
            'locks': Error.LOCK, 'notifications': Error.NOTIFICATION,
            'events': Error.NOTIFICATION}

EVENTS = prometheus_client.Counter(
    'dmclone_move_events', 'Events of moves and copies.', ['flow', 'event'],
    registry=REGISTRY)
ERRORS = prometheus_client.Counter(
    'dmclone_errors', "Lines of the level ERROR in the driver's log.",
    ['kind'], registry=REGISTRY)
COPIED = prometheus_client.Counter(
    'dmclone_copied_bytes', 'Bytes by which clones have filled, by hydration '
    "and by their guests' writes.", registry=REGISTRY)
HOLDS = prometheus_client.Counter(
    'dmclone_holds', 'Times that requests to a source were held back, since '
    'its session was lost.', registry=REGISTRY)
CALLS = prometheus_client.Counter(
    'dmclone_rpc_calls', 'Calls to peers.', ['result'], registry=REGISTRY)
CALL_SECONDS = prometheus_client.Histogram(
    'dmclone_rpc_seconds', 'Durations of calls to peers.',
    buckets=_SECONDS, registry=REGISTRY)
LOCK_FAILURES = prometheus_client.Counter(
    'dmclone_lock_failures', 'Locks of volumes that were not acquired.',
    ['reason'], registry=REGISTRY)
LOCK_WAIT = prometheus_client.Histogram(
    'dmclone_lock_wait_seconds', 'How long the locks of volumes were waited '
    'for.', buckets=_SECONDS, registry=REGISTRY)
LOCK_HELD = prometheus_client.Histogram(
    'dmclone_lock_held_seconds', 'How long the locks of volumes were held.',
    buckets=_SECONDS, registry=REGISTRY)
LOCKS_WAITING = prometheus_client.Gauge(
    'dmclone_locks_waiting', "Requests that wait for a volume's lock.",
    registry=REGISTRY)
GATE_WAIT = prometheus_client.Histogram(
    'dmclone_gate_wait_seconds', 'How long the first write of a guest that '
    'has arrived waited for its gate.', buckets=_SECONDS, registry=REGISTRY)

# Each series is there from the start: increase() does not see the first count
# of one that appears with it.
for _flow, _kinds in events.OF_FLOW.items():
    for _kind in _kinds:
        EVENTS.labels(_flow.value, _kind.value)
for _metric, _values in ((ERRORS, Error), (CALLS, Call),
                         (LOCK_FAILURES, LockFailure)):
    for _value in _values:
        _metric.labels(_value.value)


def listen(event: events.Event) -> None:
    """Count an event."""
    EVENTS.labels(event.flow.value, event.kind.value).inc()


@contextlib.contextmanager
def call() -> collections.abc.Iterator[None]:
    """Count and time a call to a peer."""
    start, result = time.monotonic(), Call.FAILED
    try:
        yield
        result = Call.ANSWERED
    except exception.PeerUnreachable:
        result = Call.UNREACHABLE
        raise
    except exception.PeerTooOld:
        result = Call.TOO_OLD
        raise
    finally:
        CALLS.labels(result.value).inc()
        CALL_SECONDS.observe(time.monotonic() - start)


class ErrorHandler(logging.Handler):
    """Counts the lines of the level ERROR and above in the driver's log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line; it is written by other handlers."""
        module = record.name.rpartition('.')[2]
        ERRORS.labels(_MODULES.get(module, Error.OTHER).value).inc()


def watch_log() -> None:
    """Count the errors in the driver's log from now on."""
    logger = logging.getLogger(dmclone_driver.__name__)
    if not any(isinstance(handler, ErrorHandler)
               for handler in logger.handlers):
        logger.addHandler(ErrorHandler())
