# SPDX-License-Identifier: Apache-2.0
"""A simulated kernel's device-mapper and block devices.

It has the rules of real devices: a device in use cannot be removed, a clone
starts with the state in its metadata, and a wait for a write that waits itself
does not end. Actions that would hang or destroy data are recorded in
``violations``, since the driver may survive the exception.
"""

import contextlib
import dataclasses
import errno

from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver.node.devicemapper import marks
from dmclone_driver.node.devicemapper import pokes
from dmclone_driver.node.devicemapper import quotas
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node import names as names_module
from tests.unit.fakes import clone as clone_module
from tests.unit.fakes import steps as steps_module

MAPPER = '/dev/mapper/'
#: Those replacements of devicemapper.sysfs that cannot fail.
LISTS = ('all_requests', 'names', 'suspended_names')


def error(text, code=1):
    """Return the exception of a failed program."""
    return processutils.ProcessExecutionError(stderr=text, exit_code=code)


class Segment:
    """A line of a table."""

    def __init__(self, line):
        self.start, self.length, self.kind, *self.words = line.split()
        self.start, self.length = int(self.start), int(self.length)

    def paths(self):
        """Return the paths of the devices below."""
        return self.words[:{'linear': 1, 'clone': 3, 'snapshot-origin': 1,
                            'snapshot': 2, 'delay': 1}.get(self.kind, 0)]


class Device:
    """A device of the mapper."""

    def __init__(self, kernel, uuid, read_only):
        self._kernel = kernel
        self.uuid = uuid
        self.read_only = read_only
        self.table = []
        self.loaded = None
        self.suspended = False
        self.sealed = False
        self.discards = True
        self.opened = 0
        #: The number of requests that its users have made.
        self.requests = 0
        #: The clone that it is itself.
        self.own = None

    @property
    def clone(self):
        """Return the clone that it is or, if linear, lies on."""
        if self.own or not self.table:
            return self.own
        below = self._kernel.get((self.table[0].paths() or [''])[0])
        return below and below.clone

    def below(self):
        """Return the paths of the devices that its tables keep open."""
        return [{path for segment in table for path in segment.paths()}
                for table in (self.table, self.loaded or [])]

    @property
    def size(self):
        return sum(segment.length for segment in self.table) * 512

    @property
    def kinds(self):
        """Return its segments' kinds as text; also "clone" for its handle."""
        return 'clone' if self.clone else ' '.join(
            segment.kind for segment in self.table)


class _Now:
    """The present time of a kernel."""

    def __init__(self, kernel):
        self._kernel = kernel

    def __getattr__(self, name):
        return getattr(self._kernel.time, name)


class SwapProcess:
    """The process of a swap, which outlives its caller.

    A power cut ends it, too.
    """

    def __init__(self, kernel):
        self._kernel = kernel
        self._begun = False
        #: The exception that has killed the caller.
        self.killed = None

    def status(self, name):
        return self._do('status_of', name)

    def suspend(self, name, flush, limit):
        if limit and self._kernel.never_ends(name):
            raise swap.Waits
        self._do('suspend', name, flush)

    def load(self, name, table, read_only):
        self._do('load', name, table, read_only)

    def resume(self, name):
        self._do('resume', name)

    def _do(self, verb, *arguments):
        if isinstance(self.killed, steps_module.PowerCut):
            raise self.killed
        begun, self._begun = self._begun, True
        try:
            return self._kernel.ioctl(verb, *arguments)
        except steps_module.Killed as killed:
            if not (begun or self._kernel.steps.after):
                # The caller was killed before it started this process.
                raise
            self.killed = killed
        if isinstance(self.killed, steps_module.PowerCut):
            raise self.killed
        return getattr(self._kernel, '_' + verb)(*arguments)


class MarkProcess(SwapProcess):
    """The process that marks regions, which outlives its caller, too."""

    def __init__(self, kernel):
        super().__init__(kernel)
        self._time = kernel.time

    def now(self):
        return self._time.now()

    def sleep(self, seconds):
        self._time.sleep(seconds)

    def answers(self, name):
        return not self._kernel.lost.intersection(
            self._kernel._disks_below(name))

    def info(self, name):
        return status.Device(**self._kernel._info(name))

    def requests(self, name):
        return self._kernel.devices[name].requests

    def alone(self, name):
        return contextlib.nullcontext()

    def events(self):
        return contextlib.nullcontext()

    def commit(self, name):
        self._do('commit', name)

    def suspend(self, name, limit):
        super().suspend(name, False, limit)

    @contextlib.contextmanager
    def opened(self, name):
        yield lambda first, length: self._do('discard', name, first, length)


class Kernel:
    """The kernel of a node; survives the service, not a reboot."""

    CLONE = clone_module.Clone

    def __init__(self, lvm, steps, name):
        self.lvm = lvm
        self.steps = steps
        self.node = name
        self.devices = {}
        #: Imported disks, {path: bytes}.
        self.disks = {}
        self.block_size = 512
        #: Whether the zero target takes discards: not that of Linux 6.1.
        self.zero_discards = True
        #: Versions of targets; the clone target is that of a plain kernel.
        self.versions = {'clone': (1, 0, 0)}
        #: Verbs of messages that its clones do not know.
        self.unknown = set()
        self.targets = {'linear', 'zero', 'delay', 'error', 'clone',
                        'snapshot', 'snapshot-origin'}
        self.flushed = []
        #: Parts of devices, (path, first byte, first byte that is not).
        self.zeroed = []
        self.violations = []
        #: Imported disks whose session is lost, even if there is a target.
        self.lost = set()
        #: Imported disks whose session was ended, but which have users.
        self.ended = set()
        #: {name: requests in flight that do not end}
        self.stuck = {}
        #: Devices that were told to hold new requests.
        self.held = []
        #: The time of the last call that paced clones.
        self.time = clone_module.Time(self, 0)
        self.new_daemon()

    def new_daemon(self):
        """Start the privileged daemon, which remembers something."""
        self.quotas = quotas.Quotas(_Now(self))

    # Replacements of functions that the driver calls

    def look(self, *names):
        """Replace privsep.device_mapper.devices."""
        return self._dm('look', names, lambda: [
            self._info(name) for name in self._some(names)])

    def change(self, *operations):
        """Replace privsep.device_mapper.change."""
        for verb, *arguments in operations:
            if verb == 'dmsetup':
                self.dmsetup(*arguments)
            elif verb == 'create':
                self.dmsetup(['create', '--concise', *arguments])
            else:
                self.ioctl(verb, *arguments)

    def statuses(self, *names):
        """Replace privsep.device_mapper.statuses."""
        return self._dm('status', names, lambda: {
            name: self._status_of(name) if name in self.devices else
            self.lvm.status(name) for name in self._some(names)})

    def statuses_by_ending(self, ending):
        """Replace privsep.device_mapper.statuses_by_ending."""
        return self._dm('status', (), lambda: {
            name: self._status_of(name) for name in sorted(self.devices)
            if name.endswith(ending)})

    def pace(self, requests, seconds):
        """Replace privsep.pacing.run."""
        return self._dm('pace', [request['name'] for request in requests],
                        self._pace, requests, seconds)

    def _pace(self, requests, seconds):
        self.time = clone_module.Time(self, self.time.now())
        found = pokes.run(self.time, [pokes.Request(**request)
                                      for request in requests], seconds)
        return {name: dataclasses.asdict(outcome)
                for name, outcome in found.items()}

    def ioctl(self, verb, name, *arguments):
        """Do one ioctl, with the arguments of its function in ioctl.py."""
        return self._dm(verb, [name, *(
            arguments if verb == 'message' else ())], lambda: getattr(
                self, '_' + verb)(name, *arguments))

    def _dm(self, verb, words, action, *arguments):
        """Do ioctls of the device-mapper as one step."""
        return self.steps.run(
            ' '.join(['%s: dm %s' % (self.node, verb), *map(str, words)]),
            error('injected'), action, *arguments)

    def _some(self, names):
        """Return those of some names that exist, or all."""
        return [name for name in names or sorted(self.devices)
                if name in self.devices or names and self.lvm.status(name)]

    def run_all(self, *commands):
        """Replace privsep.command.dmsetup."""
        for arguments, table in commands:
            out = self.dmsetup(arguments, table)
        return out

    def dmsetup(self, arguments, table=None):
        """Run one command."""
        verb, *rest = arguments
        # A list of devices can be very long.
        shown = arguments[:2] if '--concise' in arguments else arguments
        return self.steps.run(
            '%s: dmsetup %s' % (self.node, ' '.join(shown)),
            error('injected'), getattr(self, '_' + verb), rest, table)

    def swap(self, request):
        """Replace privsep.swaps.swap."""
        process = SwapProcess(self)
        request = dict(request)
        del request['lock']
        try:
            found = swap.perform(process, **request)
        except processutils.ProcessExecutionError:
            if not request['hold']:
                self.resume_left(request['name'], [
                    name for name in (request['name'], request['clone'])
                    if name])
            raise
        if process.killed:
            raise process.killed
        return found

    def mark(self, name_id, handle, ranges, seconds):
        """Replace privsep.marks.run."""
        process = MarkProcess(self)
        names = names_module.Names(name_id)
        try:
            found = marks.Marker(process, names, ranges).run(seconds)
        except processutils.ProcessExecutionError:
            self.resume_left(handle, [handle])
            raise
        if process.killed:
            raise process.killed
        return dataclasses.asdict(found)

    def mapped(self, path):
        """Return the blocks that a thin volume has, (first, number) each."""
        blocks = self.lvm.volumes[path]['allocated'] >> 16
        return [(0, blocks)] if blocks else []

    def loop(self, size):
        """Replace privsep.ram_disks.loop."""
        self.disks['/dev/loop0'] = size
        return '/dev/loop0'

    def message(self, lock, name, texts):
        """Replace privsep.swaps.message; no swap is running."""
        self.change(*(['message', name, text] for text in texts))

    def resume_left(self, name, suspended):
        """Replace privsep.swaps.resume_left; no swap is running."""
        for device in suspended:
            self.ioctl('resume', device)
        return True

    def swaps_were_killed(self):
        """Replace privsep.swaps.were_killed: those that left a device."""
        return any(device.suspended for device in self.devices.values())

    def sysfs(self, name):
        """Return the replacement of a function of devicemapper.sysfs."""
        def run(*args):
            return self.steps.run(
                '%s: sysfs %s %s' % (self.node, name, ' '.join(args)),
                OSError(errno.EIO, 'injected'), getattr(self, '_' + name),
                *args)
        # Listing files cannot fail.
        return run if name not in LISTS else getattr(self, '_' + name)

    def _names(self):
        return [*self.devices, *self.lvm.pools()]

    def _disks_below(self, name):
        below = self.lvm and self.lvm.disks_below(name)
        if below is not None:
            return below
        self._need(name)
        return sorted(set().union(*self.devices[name].below()))

    def _in_flight(self, name):
        self._need(name)
        return self.stuck.get(name, 0)

    def _writes_in_flight(self, name):
        self._need(name)
        return self.devices[name].own.waiting

    def _is_suspended(self, name):
        self._need(name)
        return self.devices[name].suspended

    def _takes_discards(self, name):
        self._need(name)
        return self.devices[name].discards

    def _requests(self, name):
        self._need(name)
        return self.devices[name].requests

    def _all_requests(self):
        return {name: device.requests
                for name, device in self.devices.items()}

    def _suspended_names(self):
        return [name for name, device in self.devices.items()
                if device.suspended]

    def hold(self, name):
        """Replace privsep.command.hold."""
        self.steps.run('%s: hold %s' % (self.node, name), error('injected'),
                       self.held.append, name)

    def block(self, name):
        """Return the replacement of a function of privsep.block."""
        def run(path, *args):
            return self.steps.run(
                '%s: %s %s' % (self.node, name, path),
                OSError(errno.EIO, 'injected'), getattr(self, name), path,
                *args)
        return run

    def size(self, path):
        self._need(path)
        device = self.get(path)
        if device:
            return device.size
        return (self.disks[path] if path in self.disks
                else self.lvm.at(path)['size'])

    def logical_block_size(self, path):
        self._need(path)
        return self.block_size

    def flush_buffers(self, path):
        self._need(path)
        self.flushed.append(path)

    def flush_disk(self, path):
        self._need(path)
        self.flushed.append(path)

    def set_read_only(self, path, read_only):
        self._need(path)
        self.get(path).sealed = read_only

    def zero_start(self, path, length):
        volume = self.lvm.volumes.get(path, {})
        if volume.get('pool'):
            # The store of a snapshot, or what becomes a clone.
            if self.lvm.volumes[volume['pool']].get('full'):
                raise OSError(errno.ENOSPC, 'the pool is full')
            if volume['tags'] and '/volume-' in path:
                self.violations.append('%s is zeroed' % path)
            volume['first'] = True
            return
        if length < 4096:
            self.violations.append('superblock of %s not zeroed' % path)
        if (self.lvm.bitmap(path) or {}).get('used'):
            self.violations.append('metadata of %s zeroed again' % path)
        self.lvm.bitmaps[path] = {'hydrated': 0}

    def zero_out(self, path):
        if any(device.table and device.table[0].kind == 'clone' and
               device.table[0].words[0] == path
               for device in self.devices.values()):
            raise OSError(errno.EBUSY, '%s is in use' % path)
        self._need(path)
        self.lvm.bitmaps[path] = {'hydrated': 0}

    def zero(self, path, start, end, seconds, ionice, limit):
        """Replace privsep.clearing.zero; half a GiB takes all the time."""
        reached = min(end, start + units.Gi // 2)
        self.steps.run(
            '%s: zero %s from %d' % (self.node, path, start),
            OSError(errno.EIO, 'injected'), self._zero, path, start, reached)
        return reached

    def _zero(self, path, start, reached):
        # Where LVM's snapshots save blocks is not simulated.
        if not path.endswith('-cow'):
            self._need(path)
            device = self.get(path)
            if device and (device.sealed or device.read_only):
                raise OSError(errno.EPERM, 'read-only')
        self.zeroed.append((path, start, reached))

    def copy_disk(self, path, copy):
        """Do nothing: the disks of this kernel have no content."""

    def merge_disk(self, path, snapshot):
        """Do nothing, as :meth:`copy_disk`."""

    def forbid_discard(self, path):
        self._need(path)
        self.get(path).discards = False

    # For tests

    def outside(self):
        """Return its state, of which text can be made."""
        return (self.disks, self.flushed, self.zeroed, self.lost, self.ended,
                self.stuck, self.held, [
                    (name, vars(device), device.own and vars(device.own))
                    for name, device in self.devices.items()])

    def get(self, path):
        """Return the device of a path or name, or None."""
        return self.devices.get(path.removeprefix(MAPPER))

    def of_volumes(self):
        """Return the devices without those that belong to no volume."""
        return {name: device for name, device in self.devices.items()
                if name not in (names_module.ANCHOR, names_module.ZEROS)}

    def roles(self, names):
        """Return {role: kinds of its table} of a volume's devices."""
        found = {}
        for role in ('handle', 'clone', 'gate', 'source', 'export'):
            device = self.devices.get(names.of(role))
            if device:
                found[role] = device.kinds
        return found

    def users(self, path):
        """Return how often a device is open."""
        device = self.get(path)
        return (device.opened if device else 0) + sum(
            path in paths for other in self.devices.values()
            for paths in other.below())

    def write(self, path):
        """Write as a guest; returns whether the write is done."""
        device = self.get(path)
        if device.sealed or device.read_only:
            raise OSError(errno.EPERM, 'read-only')
        clone = device.clone
        if not clone:
            return True
        if clone.mode != 'rw':
            raise OSError(errno.EIO, 'metadata')
        gate, source = map(self.get, clone.paths[1:])
        clone.waiting += 1
        self._let_go()
        if clone.mode != 'rw':
            raise OSError(errno.EIO, 'gate')
        return not (gate.suspended or source.suspended)

    def hydrate(self, path):
        """Complete a clone's hydration."""
        clone = self.get(path).clone
        gate, source = map(self.get, clone.paths[1:])
        if not clone.hydration:
            raise AssertionError('hydration of %s is off' % path)
        if gate.suspended or source.suspended or (
                gate.kinds, source.kinds) != ('linear', 'linear'):
            raise AssertionError('hydration of %s cannot run' % path)
        clone.bitmap['hydrated'], clone.copying = clone.total, 0

    def fail_waiting(self):
        """Fail the requests that wait for a source."""
        for device in self.devices.values():
            if device.own:
                device.own.waiting = 0

    def reboot(self):
        """Remove all devices; logical volumes remain."""
        self.devices, self.disks, self.stuck = {}, {}, {}

    # The ioctls, and the verbs of dmsetup

    def _named(self, name):
        if name not in self.devices:
            raise error('Device %s not found' % name)
        return self.devices[name]

    def _need(self, path):
        if not (self.get(path) or path in self.disks or self.lvm.at(path)):
            raise OSError(errno.ENOENT, 'no device %s' % path)

    def _info(self, name):
        device = self.devices[name]
        return {'name': name, 'uuid': device.uuid,
                'open_count': self.users(MAPPER + name),
                'suspended': device.suspended, 'live': bool(device.table),
                'read_only': device.read_only}

    def _status_of(self, name):
        device = self._named(name)
        return ''.join('%d %d %s %s\n' % (
            part.start, part.length, part.kind,
            self._clone_status(device.own) if part.kind == 'clone' else '')
            for part in device.table)

    def _clone_status(self, clone):
        if clone.mode == 'Fail':
            return 'Fail'
        features = ['no_discard_passdown']
        if not clone.hydration:
            features.insert(0, 'no_hydration')
        return '8 20/1024 %d %d/%d %d %d %s 4 %s %s' % (
            clone.region, clone.bitmap['hydrated'], clone.total,
            clone.waiting + clone.copying, len(features), ' '.join(features),
            'hydration_threshold %d hydration_batch_size %d' % (
                clone.threshold, clone.batch), clone.mode)

    def _targets(self, arguments, table):
        return ''.join('%-16s v%d.%d.%d\n' % (
            name, *self.versions.get(name, (1, 0, 0)))
            for name in self.targets)

    def _parse(self, text, device):
        segments = [Segment(line) for line in text.splitlines()]
        for segment in segments:
            for path in segment.paths():
                self._need(path)
            if segment.kind == 'clone':
                if device.table and not device.suspended:
                    self.violations.append('clone loaded over a live device')
                if 'no_hydration' not in segment.words:
                    self.violations.append('clone made with hydration on')
                if self.lvm.bitmap(segment.words[0]) is None:
                    raise error('metadata was never formatted')
        return segments

    def _create(self, arguments, table):
        if arguments[0] == '--concise':
            for each in arguments[1].split(';'):
                name, uuid, _minor, _mode, *lines = each.split(',')
                self._create_one([name, '--uuid', uuid], '\n'.join(lines))
        else:
            self._create_one(arguments, table)

    def _create_one(self, arguments, table):
        name, option, uuid, *mode = arguments
        if name in self.devices or option != '--uuid':
            raise error('Device or resource busy')
        device = self.devices[name] = Device(
            self, uuid, mode == ['--readonly'])
        if mode == ['--notable']:
            return
        try:
            self.steps.run('%s: table of %s' % (self.node, name),
                           error('injected'), self._use, device, table)
        except (processutils.ProcessExecutionError, OSError):
            del self.devices[name]
            raise

    def _use(self, device, table):
        self._switch(device, self._parse(table, device))

    def _load(self, name, table, read_only=False):
        device = self._named(name)
        if not device.table:
            device.read_only = read_only
        if device.read_only != read_only:
            self.violations.append('%s changes its mode' % name)
        device.loaded = self._parse(table, device)

    def _switch(self, device, segments):
        device.table, device.loaded, device.own = segments, None, None
        device.discards = all(map(self._takes, segments))
        if segments[0].kind == 'clone':
            bitmap = self.lvm.bitmap(segments[0].words[0])
            bitmap['used'] = True
            device.own = self.CLONE(bitmap, segments[0])
        elif device.uuid.startswith('DMCLONE-handle') and device.clone and (
                device.discards):
            self.violations.append('a guest may discard regions')

    def _takes(self, segment):
        """Return whether a segment of a table takes discards."""
        if segment.kind == 'zero':
            return self.zero_discards
        return segment.kind == 'clone' or (
            segment.kind in ('linear', 'delay') and
            all(device is None or device.discards
                for device in map(self.get, segment.paths())))

    def _commit(self, name):
        self._drain(name, self._named(name))

    def _discard(self, name, first, length):
        """Mark regions, as process_discard_bio does."""
        device = self._named(name)
        if not device.discards:
            raise OSError(errno.EOPNOTSUPP, 'no discards')
        names, _role = names_module.parse(name)
        clone, gate = device.own, self.devices[names.of('gate')]
        pool = self.lvm.at(gate.table[0].words[0]).get('pool')
        for wrong, what in (
                (not self.devices[names.of('handle')].suspended,
                 'while its guest writes'),
                (clone.waiting or clone.copying, 'during a copy'),
                (clone.hydration, 'while it hydrates'),
                (gate.suspended, 'behind its gate'),
                (not pool, 'on a thick volume'),
                (pool and self.lvm.volumes[pool].get('full'),
                 'in a full pool')):
            if wrong:
                self.violations.append('%s is marked %s' % (name, what))
        size = clone.region * 512
        clone.discard(-(-first // size), (first + length) // size)

    def _suspend(self, name, flush=True):
        device = self._named(name)
        if flush:
            self._drain(name, device)
        device.suspended = True

    def never_ends(self, name):
        """Return whether a suspend would wait for ever."""
        clone = self._named(name).clone
        if not clone:
            return False
        gate, source = map(self.get, clone.paths[1:])
        return clone.waiting and (gate.suspended or source.suspended)

    def _drain(self, name, device):
        """Wait for the requests of a clone, and commit its metadata."""
        clone = device.clone
        if not clone:
            return
        gate, source = map(self.get, clone.paths[1:])
        # Without a change there is no commit and no flush.
        if gate and gate.suspended and (clone.waiting or (
                device.own and clone.bitmap['hydrated'])):
            self.violations.append('%s waits for its gate for ever' % name)
        if clone.waiting and source.suspended:
            self.violations.append('%s waits for its source' % name)

    def _resume(self, name):
        device = self._named(name)
        if device.loaded:
            self._switch(device, device.loaded)
        device.suspended = False
        self._let_go()

    def _let_go(self):
        """Finish the writes that do not have to wait any longer."""
        for device in self.devices.values():
            if not device.own:
                continue
            gate, source = map(self.get, device.own.paths[1:])
            if gate.kinds == 'error' and not gate.suspended and (
                    device.own.waiting):
                device.own.waiting, device.own.mode = 0, 'ro'
            elif not (gate.suspended or source.suspended):
                device.own.bitmap['hydrated'] = min(
                    device.own.total,
                    device.own.bitmap['hydrated'] + device.own.waiting)
                device.own.waiting = 0

    def _message(self, name, text):
        verb, *values = text.split()
        clone = self._named(name).own
        if not clone:
            raise error('Invalid argument')
        if verb in self.unknown or verb == 'hydrate' and (
                self.versions['clone'] < quotas.VERSION):
            raise OSError(errno.EINVAL, 'Unsupported message %s' % verb)
        if verb == 'hydration_batch_size':
            clone.batch = int(values[0])
            return
        if verb == 'hydration_threshold':
            clone.threshold = int(values[0])
        elif verb == 'hydrate':
            clone.quota = int(values[0])
        else:
            clone.hydration = {'enable_hydration': True,
                               'disable_hydration': False}[verb]
        clone.wake()

    def _remove(self, arguments, table):
        name = arguments[-1]
        device = self._named(name)
        if self.users(MAPPER + name):
            raise error('Device or resource busy')
        self._drain(name, device)
        del self.devices[name]
