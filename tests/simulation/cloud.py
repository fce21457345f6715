# SPDX-License-Identifier: Apache-2.0
"""The simulated nodes of the unit tests, in simulated time.

Everything outside of a process takes time here: a query, a message, a
process, a session. The driver's threads, locks and waits are the real ones,
with the clock of the simulation.
"""

import collections
import contextlib
import dataclasses
import functools
import queue
import re
import types
import weakref

from cinder import exception as cinder_exception
import greenlet
import oslo_messaging as messaging
from sqlalchemy import engine
from sqlalchemy import event

from dmclone_driver.move import jobs
from tests.simulation import clock as clock_module
from tests.simulation import meter as meter_module
from tests.unit.fakes import cloud as fake_cloud
from tests.unit.fakes import network
from tests.unit.fakes import steps as steps_module

#: The steps that start a process, and of them those that take LVM's lock.
_PROCESS = re.compile(r'(dmsetup|group|hold|vgs|[lpv][vg]\w+)\b')
_LVM = re.compile(r'(group|[lpv][vg](?!s\b)\w+)\b')
#: Seconds of real time in which services are up without a heartbeat.
UP = 10 ** 6

_SESSION = re.compile('(log in|log out|export|unexport) ')
#: SQLite reads all rows of the table for this condition. MariaDB reads a range
#: of the index (deleted, host).
_ON_HOST = re.compile(r'\(volumes\.host = \? OR \(volumes\.host LIKE \?'
                      r"( \|\| '%' ESCAPE '/')?\)\)")
#: The same for the hosts of the simulation, as a range.
_RANGE = "(volumes.host >= ? AND volumes.host < rtrim(?, '%') || '~')"


@dataclasses.dataclass(frozen=True)
class Costs:
    """How long things take, in seconds, and sizes of the simulated nodes.

    They are assumptions, and options of the program.

    :ivar query: one statement for the database
    :ivar message: one way of a message between two services
    :ivar process: a process, such as one of LVM
    :ivar session: to begin or to end an export, or a session to it
    :ivar bandwidth: MiB/s that a node sends, and as many that it receives
    :ivar workers: messages that a service handles at once
    """

    query: float = 0.001
    message: float = 0.002
    process: float = 0.03
    session: float = 0.3
    bandwidth: float = 1000
    workers: int = 64


class Steps(steps_module.Steps):
    """Steps that take time, and are counted instead of kept."""

    def __init__(self, cloud):
        super().__init__()
        self._cloud = cloud

    def run(self, what, error, function, *args, **kwargs):
        node = self._cloud.here
        step = what.partition(': ')[2]
        if _PROCESS.match(step):
            self._cloud.meter.count('processes', node.name)
            with node.lvm_lock if _LVM.match(step) else (
                    contextlib.nullcontext()):
                self._cloud.pause(self._cloud.costs.process)
                return function(*args, **kwargs)
        if _SESSION.match(step):
            self._cloud.pause(self._cloud.costs.session)
        return function(*args, **kwargs)


class Lock:
    """A lock of the coordination service; it is waited for."""

    def __init__(self, cloud, name):
        self._cloud, self._lock = cloud, cloud.semaphore('tooz ' + name)

    def acquire(self, blocking=True):
        self._cloud.meter.count('lock requests')
        self._cloud.pause(self._cloud.costs.message)
        return self._lock.acquire(
            timeout=None if blocking is True else float(blocking))

    def release(self):
        self._cloud.meter.count('lock requests')
        self._cloud.pause(self._cloud.costs.message)
        self._lock.release()
        return True


class Client(network.Client):
    """A client whose calls take time, and end with their time-out."""

    def __init__(self, cloud, server=None, timeout=None):
        super().__init__(cloud, server)
        self._timeout = timeout

    def prepare(self, server, timeout, version):
        return Client(self._cloud, server, timeout)

    def call(self, context, method, **arguments):
        cloud, answer, waiting = self._cloud, [], collections.deque()
        cloud.message()
        cloud.meter.count('calls of ' + method)
        cloud.meter.begin('calls')
        cloud.spawn(self._serve, context, method, arguments, answer, waiting)
        try:
            if not cloud.clock.wait(waiting, self._timeout):
                cloud.meter.count('calls without an answer')
                raise messaging.MessagingTimeout(method)
        finally:
            cloud.meter.end('calls')
        result, error = answer
        if error is not None:
            raise error
        return result

    def _serve(self, context, method, arguments, answer, waiting):
        cloud = self._cloud
        cloud.pause(cloud.costs.message)
        node = cloud.by_host[self._server]
        cloud.here = node
        with node.workers:
            try:
                found = getattr(node.server.endpoint, method)(context,
                                                              **arguments)
                answer += found, None
            except cinder_exception.CinderException as error:
                answer += None, error
            except Exception as error:
                answer += None, messaging.RemoteError(
                    type(error).__name__, str(error))
            cloud.message()
            cloud.pause(cloud.costs.message)
        cloud.clock.wake(waiting)


class Rpc(network.Rpc):
    """Replaces cinder.rpc as used by rpcapi."""

    def get_client(self, target):
        return Client(self._cloud)


class Node(fake_cloud.Node):
    """A simulated machine whose service runs in greenlets."""

    def __init__(self, cloud, name, **options):
        super().__init__(cloud, name, **options)
        self.lvm_lock = clock_module.Semaphore(cloud.clock)
        self.workers = clock_module.Semaphore(
            cloud.clock, cloud.costs.workers, functools.partial(
                cloud.meter.waited, 'a worker of a service'))
        self.events = clock_module.Flag(cloud.clock)

    # Cached, since creating and setting the options is slow.
    _set_options = staticmethod(functools.cache(
        fake_cloud.Node._set_options))


class Cloud(fake_cloud.Cloud):
    """Nodes whose code runs in greenlets; each has its own `here`."""

    NODE = Node

    def __init__(self, test, costs=Costs()):
        self.costs = costs
        self.clock = clock_module.Clock()
        self.meter = meter_module.Meter(self.clock)
        self._here = weakref.WeakKeyDictionary()
        #: Seconds of queries for which a greenlet has not waited yet.
        self._debts = weakref.WeakKeyDictionary()
        self._semaphores = {}
        super().__init__(test)
        self.steps = Steps(self)
        event.listen(engine.Engine, 'before_cursor_execute', self._query,
                     retval=True)
        test.addCleanup(event.remove, engine.Engine, 'before_cursor_execute',
                        self._query)

    @property
    def here(self):
        """The node whose code the greenlet runs."""
        return self._here.get(greenlet.getcurrent())

    @here.setter
    def here(self, node):
        self._here[greenlet.getcurrent()] = node

    @property
    def seconds(self):
        """The time, as the driver sees it."""
        return self.clock.now

    @seconds.setter
    def seconds(self, value):
        self.clock.now = value

    def pass_time(self, seconds):
        self.pause(seconds)

    def spawn(self, function, *args):
        """Run a function of the same node in a greenlet of its own."""
        def run(node):
            self.here = node
            function(*args)
        self.clock.spawn(run, self.here)

    def pause(self, seconds):
        """Let time pass, that of the queries until now included.

        A greenlet does not wait within a transaction: the simulated database
        has one connection.
        """
        debt = self._debts.pop(greenlet.getcurrent(), 0)
        if debt:
            self.meter.begin('queries')
            self.clock.sleep(debt)
            self.meter.end('queries')
        self.clock.sleep(seconds)

    def message(self):
        """Count a message, whose sender is the node here."""
        self.meter.count('messages', self.here and self.here.name)

    def _query(self, connection, cursor, statement, parameters, *args):
        # SQLite's alone; it is no message to a server.
        if statement != 'BEGIN':
            self._count_query()
        return _ON_HOST.sub(_RANGE, statement), parameters

    def _count_query(self):
        self.meter.count('queries', self.here and self.here.name)
        current = greenlet.getcurrent()
        self._debts[current] = (self._debts.get(current, 0) +
                                self.costs.query)

    def semaphore(self, name):
        """Return the semaphore with a name, of the process here."""
        return self._semaphores.setdefault(name, clock_module.Semaphore(
            self.clock, 1, functools.partial(
                self.meter.waited, "a volume's lock")))

    def _get_lock(self, name):
        return Lock(self, name)

    def _patch(self):
        super()._patch()
        # Heartbeats are not simulated, and Cinder compares with the real time.
        self.test.override_config('service_down_time', UP)
        patch, clock = self.test.patch, self.clock
        threads = clock_module.threads(clock, self.spawn)
        times = types.SimpleNamespace(sleep=self.pause, monotonic=clock.time)
        for module in ('move.activation', 'move.jobs', 'move.locks',
                       'move.outages', 'move.threads', 'move.watcher',
                       'move.gathering', 'drain.mover', 'drain.threads'):
            patch('dmclone_driver.%s.threading' % module, new=threads)
        for module in ('move.outages', 'move.watcher', 'move.gathering',
                       'drain.mover',
                       'drain.runner', 'drain.stop'):
            patch('dmclone_driver.%s.time' % module, new=times)
        for module, which in (('destination', 'a turn at the new home'),
                              ('home', 'a turn at the old home')):
            patch('dmclone_driver.move.%s.threading' % module,
                  new=types.SimpleNamespace(
                      BoundedSemaphore=functools.partial(
                          self._turns, which)))
        patch('dmclone_driver.drain.threads.queue', new=types.SimpleNamespace(
            SimpleQueue=lambda: clock_module.Queue(clock),
            Empty=queue.Empty))
        patch('dmclone_driver.move.gathering.queue', new=types.SimpleNamespace(
            Queue=lambda: clock_module.Queue(clock), Empty=queue.Empty))
        patch('dmclone_driver.move.watcher.events', new=types.SimpleNamespace(
            wait=lambda seconds: self.here.events.wait(seconds)))
        patch('dmclone_driver.move.backend.jobs', new=types.SimpleNamespace(
            Jobs=lambda: jobs.Jobs(clock.time)))
        patch('dmclone_driver.move.rpcapi.rpc', new=Rpc(self))
        patch('dmclone_driver.move.locks._SEMAPHORES',
              new=types.SimpleNamespace(get=self.semaphore))
        patch('oslo_utils.timeutils.now', new=clock.time)

    def _turns(self, which, places):
        return clock_module.Semaphore(
            self.clock, places, functools.partial(self.meter.waited, which))

    def start_copying(self):
        """Fill the clones from now on, at the rate of the nodes' links."""
        self.clock.spawn(self._copy)

    def _copy(self):
        copied = collections.Counter()
        while True:
            self.clock.sleep(1)
            clones = list(self._hydrating())
            ends = collections.Counter(end for _clone, to, came_from in clones
                                       for end in (to, came_from))
            self.meter.now('copies', len(clones))
            self.meter.now('copies of a node', max(ends.values(), default=0))
            for clone, to, came_from in clones:
                share = self.costs.bandwidth / max(ends[to], ends[came_from])
                copied[clone] += share * 2048 / clone.region
                clone.bitmap['hydrated'] = min(clone.total,
                                               int(copied[clone]))
                if clone.bitmap['hydrated'] == clone.total:
                    to.events.set()

    def _hydrating(self):
        """Yield the clones that hydrate: (clone, to, from)."""
        exports = {network.DISKS + iqn: node for node in self.nodes.values()
                   for iqn in node.target.exports}
        self.meter.now('iSCSI sessions', sum(
            len(node.kernel.disks) for node in self.nodes.values()))
        for node in self.nodes.values():
            for device in node.kernel.devices.values():
                clone = device.own
                if clone and clone.hydration and (
                        clone.bitmap['hydrated'] < clone.total):
                    disk, = node.kernel.get(clone.paths[2]).below()[0]
                    yield clone, node, exports[disk]
