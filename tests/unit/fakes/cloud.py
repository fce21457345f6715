# SPDX-License-Identifier: Apache-2.0
"""Nodes with the real driver on simulated machines, and a database."""

import contextlib
import datetime
import threading
import types
from unittest import mock
import uuid

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.objects import base as objects_base
from cinder.tests.unit import utils as cinder_utils
from cinder.volume import configuration
from cinder.volume import manager
from cinder.volume import rpcapi
from oslo_config import cfg
from oslo_utils import timeutils

from dmclone_driver import driver as driver_module
from dmclone_driver.move import catching_up
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import outages
from dmclone_driver.move import placeholders
from dmclone_driver.move import recovery
from dmclone_driver.move import released_sources
from dmclone_driver.move import watcher
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver.node import pacing
from dmclone_driver.releases import db_api
from tests.unit.fakes import coordination
from tests.unit.fakes import kernel
from tests.unit.fakes import network
from tests.unit.fakes import steps as steps_module
from tests.unit.fakes import storage

BACKEND = 'dmclone'
GROUP = 'volumes'
GIB = storage.GIB
BLOCK = ('size', 'logical_block_size', 'flush_buffers', 'set_read_only',
         'zero_start', 'zero_out', 'forbid_discard', 'flush_disk')
#: {function of privsep: its replacement in the simulated kernel}
KERNEL = {'clearing.zero': 'zero',
          'command.dmsetup': 'run_all', 'command.hold': 'hold',
          'device_mapper.change': 'change', 'device_mapper.devices': 'look',
          'device_mapper.statuses': 'statuses',
          'device_mapper.statuses_by_ending': 'statuses_by_ending',
          'marks.run': 'mark',
          'pacing.run': 'pace', 'ram_disks.loop': 'loop',
          'swaps.message': 'message', 'swaps.resume_left': 'resume_left',
          'swaps.swap': 'swap', 'swaps.were_killed': 'swaps_were_killed'}
#: {function of devicemapper.sysfs: its replacement in the simulated kernel}
SYSFS = {'all_requests': 'all_requests', 'devices': 'names',
         'disks_below': 'disks_below', 'in_flight': 'in_flight',
         'is_suspended': 'is_suspended',
         'requests': 'requests', 'suspended': 'suspended_names',
         'takes_discards': 'takes_discards',
         'writes_in_flight': 'writes_in_flight'}


#: The jobs that do not run at once, but in settle(), like in a thread.
LATER = (catching_up.CatchingUp.catch_up,
         recovery.Recovery._resume_local,
         released_sources.ReleasedSources.release)


class Jobs(jobs.Jobs):
    """Jobs with the clock of a simulated cloud."""

    def __init__(self, cloud):
        super().__init__(lambda: cloud.seconds)
        self._cloud = cloud

    def start(self, key, function, *args):
        if self.at_work(key):
            return
        self._working.add(key)
        if getattr(function, '__func__', None) in LATER:
            self._cloud.later.append((self._cloud.here, self.run,
                                      (key, function, *args)))
        else:
            self.run(key, function, *args)


class Listeners:
    """The listeners to events in the process of the node whose code runs."""

    def __init__(self, cloud):
        self._cloud = cloud

    def append(self, listener):
        self._cloud.here.listeners.append(listener)

    def __iter__(self):
        return iter(self._cloud.here.listeners if self._cloud.here else ())


class Cloud:
    """Some nodes; ``here`` is the node whose code runs."""

    #: Where the services keep their files; there is none.
    STATE_PATH = '/nonexistent'

    def __init__(self, test):
        self.test = test
        self.steps = steps_module.Steps()
        self.context = self._make_context()
        self.nodes, self.by_host = {}, {}
        self.here = None
        #: How often the code of another node has begun to run.
        self.turns = 0
        self.seconds = 1000
        self.later = []
        self.locks, self.semaphores = set(), set()
        self.dead_locks = []
        self._patch()

    @staticmethod
    def _make_context():
        context = cinder_context.get_admin_context()
        context.user_id = context.project_id = uuid.uuid4().hex
        return context

    def _patch(self):
        def dispatch(part, name):
            return lambda *args, **kwargs: getattr(
                getattr(self.here, part), name)(*args, **kwargs)

        patch = self.test.patch
        for path, name in KERNEL.items():
            patch('dmclone_driver.privsep.' + path,
                  new=dispatch('kernel', name))
        patch('dmclone_driver.privsep.command.lvm',
              new=dispatch('lvm', 'lvm'))
        patch('dmclone_driver.node.thin_maps.is_installed', new=lambda: True)
        patch('dmclone_driver.privsep.thin.dump', new=dispatch('lvm', 'dump'))
        patch('dmclone_driver.privsep.thin.release',
              new=dispatch('lvm', 'release'))
        for name, fake in SYSFS.items():
            patch('dmclone_driver.node.devicemapper.sysfs.' + name,
                  new=lambda *args, n=fake: self.here.kernel.sysfs(n)(*args))
        for name in BLOCK:
            patch('dmclone_driver.privsep.block.' + name,
                  new=lambda *args, n=name: self.here.kernel.block(n)(*args))
        patch('cinder.brick.local_dev.lvm.LVM', new=mock.Mock(
            side_effect=lambda name, *args, lvm_type='default', **kwargs:
            self.here.group(name, lvm_type),
            LVM_CMD_PREFIX=['env', 'LC_ALL=C'],
            get_all_volume_groups=lambda helper, name: self.here.groups(name)))
        patch('dmclone_driver.opening.importutils', new=types.SimpleNamespace(
            import_object=lambda *args, **kwargs: self.here.target))
        patch('dmclone_driver.node.initiator.Initiator',
              new=lambda attempts, timeout: network.Initiator(
                  self.here, timeout))
        patch('dmclone_driver.move.rpcapi.rpc', new=network.Rpc(self))
        patch('dmclone_driver.move.peers.addresses', new=lambda name: {
            node.address for node in self.nodes.values()
            if node.name == name})
        patch('platform.release', new=lambda: '6.1.0')
        # They read files, or the cards, of this machine.
        patch('dmclone_driver.move.pace_settings.CONF',
              new=types.SimpleNamespace(state_path=self.STATE_PATH))
        patch('dmclone_driver.node.links.speed', new=lambda address: None)
        patch('dmclone_driver.checks.start.log_faults',
              new=lambda configuration: None)
        patch('dmclone_driver.checks.options.ISCSI_TARGETS',
              new={'tgtadm': 'not imported'})
        for module in ('move.watcher', 'move.outages', 'node.pacing'):
            # Their loops are replaced by calls of look() and beat().
            patch('dmclone_driver.%s.threading' % module,
                  new=types.SimpleNamespace(Thread=self._loop))
        patch('dmclone_driver.move.notifications.threading',
              new=mock.Mock())
        patch('dmclone_driver.move.metrics_endpoint.start',
              new=lambda configuration, collector: setattr(
                  self.here, 'collector', collector))
        patch('dmclone_driver.move.events._LISTENERS', new=Listeners(self))
        patch('dmclone_driver.move.backend.jobs',
              new=types.SimpleNamespace(Jobs=lambda: Jobs(self)))
        patch('dmclone_driver.move.metrics.threading',
              new=types.SimpleNamespace(Thread=self._thread_at_once,
                                        Lock=threading.Lock))
        for module in ('move.activation', 'move.locks', 'move.threads'):
            patch('dmclone_driver.%s.threading' % module,
                  new=types.SimpleNamespace(Thread=self._thread_at_once))
        for module in ('move.activation', 'move.deadline', 'move.destination',
                       'move.prepared_moves', 'node.copying'):
            patch('dmclone_driver.%s.time' % module,
                  new=types.SimpleNamespace(
                      sleep=self.pass_time, monotonic=lambda: self.seconds))
        patch('cinder.coordination.Coordinator.get_lock', new=self._get_lock)
        patch('dmclone_driver.move.locks._SEMAPHORES',
              new=types.SimpleNamespace(
                  get=lambda name: coordination.Semaphore(self, name)))

    def _loop(self, target, **kwargs):
        looks = target.__self__
        setattr(self.here, {outages.Outages: 'outages',
                            pacing.Pacemaker: 'pacemaker',
                            watcher.Watcher: 'watcher'}[type(looks)], looks)
        return types.SimpleNamespace(start=lambda: None)

    @staticmethod
    def _thread_at_once(target, args=(), **kwargs):
        return types.SimpleNamespace(start=lambda: target(*args),
                                     join=lambda timeout: None,
                                     is_alive=lambda: False)

    def _get_lock(self, name):
        return coordination.Lock(self, name)

    def wait_for_ever(self, name):
        """Record and raise a dead lock: a wait for a lock without an end."""
        self.dead_locks.append(name)
        raise AssertionError('dead lock: ' + name)

    @contextlib.contextmanager
    def on(self, node):
        """Run the code of a node."""
        before, self.here = self.here, node
        self.turns += before is not node
        try:
            yield node
        finally:
            self.here = before

    def add(self, name, **options):
        """Add a node with a running service."""
        node = self.NODE(self, name, **options)
        self.nodes[name] = self.by_host[node.host] = node
        node.start()
        return node

    def report_versions(self):
        """Let the services report their versions, which their users read."""
        for node in self.nodes.values():
            node.service.rpc_current_version = (
                rpcapi.VolumeAPI.RPC_API_VERSION)
            node.service.object_current_version = (
                objects_base.OBJ_VERSIONS.get_current())
            node.service.save()

    def pass_time(self, seconds):
        """Advance the clock."""
        self.seconds += seconds

    def settle(self):
        """Run the postponed jobs."""
        while self.later:
            node, target, args = self.later.pop(0)
            if not node.down:
                with self.on(node):
                    target(*args)

    def watch(self, times=1, hydrate=True):
        """Run the watchers, and hydrate clones, some times."""
        for _ in range(times):
            self.pass_time(1000)
            for node in self.nodes.values():
                if node.down:
                    continue
                node.look_at_sessions()
                node.look()
                if hydrate:
                    node.hydrate()
            self.settle()

    # The database

    def row(self, volume_id):
        """Read a row, None if it is gone."""
        return lookups.get(self.context, volume_id)

    def rows(self):
        """Read all rows, placeholders too."""
        return list(objects.VolumeList.get_all(self.context))

    def placeholders(self):
        """Read the rows of placeholders."""
        return [row for row in self.rows() if placeholders.is_placeholder(row)]

    def messages(self):
        """Read the user messages."""
        return db_api.message_get_all(self.context)

    def states(self):
        """Return the states of all placeholders."""
        return [placeholders.state_of(row) for row in self.placeholders()]

    def violations(self):
        """Return the actions that would have hung or destroyed data."""
        return self.dead_locks + [
            text for node in self.nodes.values()
            for text in node.kernel.violations]

    def outside(self):
        """Return as text what outlives the process whose code runs.

        The database is not part of it.
        """
        return repr((self.seconds, self.turns, sorted(self.locks),
                     sorted(self.semaphores),
                     [node.outside() for node in self.nodes.values()]))

    def leftovers(self):
        """Return all objects that do not belong to idle volumes."""
        found = self.violations() + [
            'lock ' + name for name in self.locks | self.semaphores]
        idle = {}
        for row in self.rows():
            if placeholders.is_placeholder(row):
                found.append('placeholder %s' % (
                    placeholders.record_of(row).state))
            else:
                idle.setdefault(row.host, []).append(row)
            for field in ('replication_driver_data', 'provider_location',
                          'provider_auth'):
                if getattr(row, field):
                    found.append('%s of %s' % (field, row.id))
        for node in self.nodes.values():
            volumes = idle.get(node.pool, ())
            expected = {Names(row.name_id).of('handle') for row in volumes}
            devices = node.kernel.of_volumes()
            found += ['%s: %s' % (node.name, name) for name in
                      expected ^ set(devices)]
            found += ['%s: %s is %s' % (node.name, name, device.kinds)
                      for name, device in devices.items()
                      if device.kinds != 'linear' or device.suspended]
            found += ['%s: %s refuses writes' % (node.name, name)
                      for name, device in devices.items()
                      if device.sealed or device.read_only]
            found += ['%s: %s' % (node.name, name) for name in
                      {row.name for row in volumes} ^ set(node.lvm.names())]
            opened = {'/dev/%s/%s' % (GROUP, row.name):
                      logical_volumes.OPENED_TAG + row.id for row in volumes}
            found += ['%s: tags of %s' % (node.name, path)
                      for path, volume in node.lvm.volumes.items()
                      if volume['tags'] - {opened.get(path)}]
            found += ['%s: export %s' % (node.name, name)
                      for name in node.target.exports]
            found += ['%s: session %s' % (node.name, path)
                      for path in node.kernel.disks]
        return found

    # Users

    def attachment(self, volume, node, connected=True, server=None,
                   **connector):
        """Create an attachment record, of a new instance by default."""
        connector = dict(node.connector, **connector)
        record = objects.VolumeAttachment(
            self.context, volume_id=volume.id, attach_status='attached',
            attach_mode='rw', instance_uuid=server or str(uuid.uuid4()),
            connector=connector if connected else None)
        record.create()
        return record

    def attach(self, volume, node, server=None, **connector):
        """Attach a volume as Nova and Cinder do; returns its path."""
        record = self.attachment(volume, node, connected=False, server=server)
        connector = dict(node.connector, **connector)
        volume = self.row(volume.id)
        home = self.by_host[volume.host.partition('#')[0]]
        with self.on(home):
            try:
                home.driver.create_export(self.context, volume, connector)
                data = home.driver.initialize_connection(volume, connector)
            except cinder_exception.CinderException:
                record.destroy()
                raise
        record.connector = connector
        record.save()
        return data['data']['device_path']

    def migrate(self, volume, node, lock=False):
        """Migrate a volume as Cinder does; return the driver's answer.

        :param lock: whether the request locks the volume (lock_volume)
        """
        volume = self.row(volume.id)
        if lock:
            volume.previous_status, volume.status = (volume.status,
                                                     'maintenance')
        volume.migration_status = 'migrating'
        volume.save()
        home = self.by_host[volume.host.partition('#')[0]]
        with self.on(home):
            return home.driver.migrate_volume(self.context, volume,
                                              {'host': node.pool})

    def set_attach_status(self, volume, node, status):
        """Set the status of a volume's only attachment on a node."""
        record, = (record for record in self.row(volume.id).volume_attachment
                   if record.connector['host'] == node.name)
        record.attach_status = status
        record.save()

    def detach(self, volume, node, **connector):
        """Detach a volume as Nova and Cinder do."""
        connector = dict(node.connector, **connector)
        volume = self.row(volume.id)
        home = self.by_host[volume.host.partition('#')[0]]
        with self.on(home):
            result = home.driver.terminate_connection(volume, connector)
        for record in volume.volume_attachment:
            if record.connector == connector:
                record.destroy()
        return result


class Node:
    """A simulated machine and its cinder-volume."""

    KERNEL = kernel.Kernel

    def __init__(self, cloud, name, size=100 * GIB, groups=None,
                 lvm_type='default'):
        self.cloud = cloud
        self.name = name
        self.lvm_type = lvm_type
        self.host = '%s@%s' % (name, BACKEND)
        self.pool = '%s#%s' % (self.host, BACKEND)
        self.address = '192.0.2.%d' % (len(cloud.nodes) + 1)
        self.initiator = 'iqn.1993-08.org.debian:01:' + name
        self.connector = {'host': name, 'ip': self.address,
                          'initiator': self.initiator}
        self.lvm = storage.Lvm(cloud.steps, name, groups or {GROUP: size})
        self.kernel = self.KERNEL(self.lvm, cloud.steps, name)
        self.lvm.kernel = self.kernel
        self.target = network.Target(self)
        self.down = False
        self.server = self.watcher = self.outages = self.driver = None
        self.collector = self.pacemaker = None
        #: Those who listen to events in the process of the service.
        self.listeners = []
        self.service = self._register()

    def _register(self):
        service = objects.Service(
            self.cloud.context, host=self.host, binary='cinder-volume',
            topic='cinder-volume', availability_zone='zone-' + self.name,
            uuid=str(uuid.uuid4()))
        service.create()
        return service

    def group(self, name, lvm_type='default'):
        """Return Cinder's object of a volume group."""
        if name not in self.lvm.groups:
            raise cinder_exception.VolumeGroupNotFound(vg_name=name)
        return storage.Group(self.lvm, name, lvm_type)

    def groups(self, name):
        """Return a volume group as Cinder reads it from LVM."""
        self.cloud.steps.run('%s: vgs' % self.name, kernel.error('injected'),
                             lambda: None)
        group = self.group(name)
        return [{'name': name, 'size': group.vg_size,
                 'available': group.vg_free_space}]

    def start(self):
        """Start the service, without any state in memory."""
        self._end_process()
        self.down = False
        self.server = None
        self.listeners = []
        self._heard_of(1)
        with self.cloud.on(self):
            self.driver = self._make_driver()
            self.driver.check_for_setup_error()

    @staticmethod
    def _configuration(lvm_type):
        """Return the configuration of a node; only lvm_type is its own."""
        found = configuration.Configuration(manager.volume_backend_opts,
                                            config_group=BACKEND)
        found.lvm_type = lvm_type
        return found

    def _make_driver(self):
        driver = driver_module.DMCloneVolumeDriver(
            configuration=self._configuration(self.lvm_type), host=self.host)
        # With a minimum rate the first clone of a node takes more steps than
        # others; tests that need one have their own.
        self._set_options(getattr(self.cloud.test, 'FLOOR', 0))
        driver.backend_name = BACKEND
        return driver

    @staticmethod
    def _set_options(floor):
        for option, value in (('volume_group', GROUP),
                              ('volume_backend_name', BACKEND),
                              ('volume_clear', 'none'),
                              ('dmclone_hydration_min_rate', floor)):
            cfg.CONF.set_override(option, value, group=BACKEND)

    def die(self):
        """Cut the power, with a heartbeat so old that the service is down."""
        self.reboot()
        self._heard_of(-1)

    def _heard_of(self, days):
        """Set the last heartbeat, in days from now."""
        self.service.updated_at = (timeutils.utcnow() +
                                   datetime.timedelta(days))
        self.service.save()

    def stop(self):
        """Stop the service; the kernel's devices continue."""
        self._end_process()
        self.down = True
        self.cloud.later = [job for job in self.cloud.later
                            if job[0] is not self]

    def _end_process(self):
        """Release the locks of a killed process: they are not renewed."""
        for held in (self.cloud.locks, self.cloud.semaphores):
            held -= {name for name in held if self.host in name}

    def reboot(self):
        """Cut the power; the service is not started."""
        self.stop()
        self.kernel.reboot()
        self.target.reboot()
        for volume in self.lvm.volumes.values():
            volume['active'] = False

    def outside(self):
        """Return what outlives the service, of which text can be made."""
        return (self.down, self.target.exports, self.lvm.outside(),
                self.kernel.outside())

    @property
    def backend(self):
        return self.driver._backend

    @property
    def parts(self):
        return self.driver._parts

    def metrics(self):
        """Scrape the service: {(name, labels): value}."""
        with self.cloud.on(self):
            return {(sample.name, tuple(sorted(sample.labels.items()))):
                    sample.value for family in self.collector.collect()
                    for sample in family.samples}

    @property
    def notifications(self):
        return self.driver._notifications

    @property
    def home_side(self):
        return self.parts.home

    @property
    def prepared_moves(self):
        return self.parts.prepared_moves

    @property
    def destination(self):
        return self.parts.destination

    @property
    def builder(self):
        return self.parts.builder

    @property
    def activation(self):
        return self.parts.activation

    @property
    def source(self):
        return self.parts.source

    @property
    def released_sources(self):
        return self.parts.released_sources

    @property
    def jobs(self):
        return self.driver._backend.jobs

    def left(self, kind):
        """Return the ids of unfinished jobs of a kind."""
        return [str(key) for key in self.jobs._kinds[kind]]

    @property
    def preflight(self):
        return self.parts.preflight

    @property
    def requests(self):
        return self.parts.requests

    @property
    def teardown(self):
        return self.parts.teardown

    def create(self, size=1, **fields):
        """Create a user's volume on this node."""
        volume = cinder_utils.create_volume(
            self.cloud.context, host=self.pool, size=size,
            service_uuid=self.service.uuid,
            availability_zone=self.service.availability_zone,
            volume_type_id=self.cloud.test.vt['id'],
            launched_at=timeutils.utcnow(), **fields)
        with self.cloud.on(self):
            volume.update(self.driver.create_volume(volume))
        volume.save()
        return volume

    def look(self):
        """Run one check of the watcher."""
        with self.cloud.on(self):
            return self.watcher.look()

    def look_at_sessions(self):
        """Run one check of the sessions to sources."""
        with self.cloud.on(self):
            return self.outages.look()

    def pace(self):
        """Pace the clones for a second."""
        self.cloud.pass_time(pacing.BEAT)
        with self.cloud.on(self):
            self.pacemaker.beat()

    def hydrate(self):
        """Complete all hydrations that are on."""
        for name, device in self.kernel.devices.items():
            if device.own and device.own.hydration:
                self.kernel.hydrate(name)

    def clones(self):
        """Return the names of the clones."""
        return [name for name, device in self.kernel.devices.items()
                if device.own]


Cloud.NODE = Node
