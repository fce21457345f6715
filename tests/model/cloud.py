# SPDX-License-Identifier: Apache-2.0
"""The nodes of the model, and the content of volumes on their disks."""

import functools
import itertools
import re
import types

from oslo_config import cfg

from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver import opts
from tests.model import database
from tests.model import machine
from tests.unit.fakes import cloud as fake_cloud
from tests.unit.fakes import kernel
from tests.unit.fakes import steps as steps_module


class Steps(steps_module.Steps):
    """Steps that record the node on which a process was killed."""

    def __init__(self, cloud):
        super().__init__()
        self._cloud = cloud
        self.killed_on = None

    @staticmethod
    def reads(what):
        return bool(_READS.match(what))

    def run(self, what, error, function, *args, **kwargs):
        try:
            return super().run(what, error, function, *args, **kwargs)
        except steps_module.Killed as killed:
            if self.killed_on is None and str(killed) == what:
                self.killed_on = self._cloud.here
            raise


# What a step that only reads begins with, after the node's name.
_READS = re.compile(
    r'\w+: (dm look|dm status|dmsetup targets|lvs |vgs|pvs |sysfs |'
    r'size |logical_block_size |flush_buffers |group look)')


# A record cannot be changed.
_parse = functools.lru_cache(1000)(placeholders.Record.parse)


class Lost(Exception):
    """Part of a volume's content is on no disk."""


def lv_path(name_id):
    """Return the path of a volume's logical volume."""
    return '/dev/%s/volume-%s' % (fake_cloud.GROUP, name_id)


def _configuration(lvm_type):
    """Return a configuration that registers each list of options once."""
    found, known = fake_cloud.Node._configuration(lvm_type), []
    append = found.append_config_values

    def append_new(options):
        if not any(options is each for each in known):
            known.append(options)
            append(options)

    found.append_config_values = append_new
    return found


@functools.cache
def _remembered(host, lvm_type):
    """Return the configuration of a node, whose creation is slow."""
    return _configuration(lvm_type)


class Node(fake_cloud.Node):
    """A simulated machine whose disks have content, and its cinder-volume."""

    KERNEL = machine.Kernel

    def __init__(self, cloud, name, **options):
        super().__init__(cloud, name, **options)
        self.kernel.cloud = cloud

    def _register(self):
        service = types.SimpleNamespace(
            host=self.host, uuid='service-' + self.name, is_up=True,
            availability_zone='zone', save=lambda: None)
        self.cloud.database.services.append(service)
        return service

    def _configuration(self, lvm_type):
        """Return the configuration as it is in the file.

        A start has changed the object that is remembered, or was killed then.
        """
        found = _remembered(self.host, lvm_type)
        found.lvm_type = lvm_type
        return found

    # Cached, since setting the options is slow.
    _set_options = staticmethod(functools.cache(
        fake_cloud.Node._set_options))

    def reboot(self):
        super().reboot()
        # LVM activates logical volumes at a boot. On the others the service
        # has to.
        if self.name == 'node1':
            for path in self.lvm.volumes:
                self.lvm.activate(path)

    def create(self):
        volume = self.cloud.database.add(
            id=self.cloud.new_id(), host=self.pool, size=1,
            status='available', attach_status='detached',
            launched_at='then', use_quota=True,
            user_id='user', project_id='user', multiattach=False)
        with self.cloud.on(self):
            update = self.driver.create_volume(volume)
        self.cloud.database.change(volume.id, **update)
        return volume


class Cloud(fake_cloud.Cloud):
    """Three nodes with one volume."""

    NODE = Node

    def __init__(self, patch, copies):
        """Create a cloud without nodes.

        :param copies: how many run at a time, to each node and from each
        """
        # The driver registers them later.
        _remembered('', 'default').append_config_values(opts.MOVE_OPTS)
        cfg.CONF.set_override('dmclone_copies_at_once', copies,
                              group=fake_cloud.BACKEND)
        self.database = database.Database(self)
        self._numbers = itertools.count(1)
        super().__init__(types.SimpleNamespace(patch=patch))
        self.steps = Steps(self)
        for path, new in self.database.patches.items():
            patch('dmclone_driver.' + path, new=new)
        self.new_id()
        # oslo.messaging registers the option, and is not started here.
        patch('dmclone_driver.move.deadline.CONF',
              new=types.SimpleNamespace(rpc_response_timeout=60))
        for module in ('creations', 'move.copies', 'move.followers',
                       'move.home', 'move.new_content'):
            patch('dmclone_driver.%s.uuid' % module,
                  new=types.SimpleNamespace(uuid4=self.new_id))
        patch('cinder.volume.volume_utils.copy_volume', new=self.copy_volume)
        # Each check after a step parses the same few texts.
        patch('dmclone_driver.move.placeholders.Record.parse', new=_parse)

    def _make_context(self):
        return self.database.context

    def pass_time(self, seconds):
        super().pass_time(seconds)
        # A violation must be raised although the driver retries for ever.
        self.steps.observe()

    def new_id(self):
        """Return a new id, which is easier to read than a random one."""
        return '%08x-0000-0000-0000-000000000000' % next(self._numbers)

    def row(self, row_id):
        return (database.Volume(self.database, row_id)
                if row_id in self.database.rows else None)

    def rows(self):
        return [self.row(row_id) for row_id in self.database.rows]

    def snapshot(self, volume):
        """Return a snapshot of a volume that is not created yet."""
        return database.Snapshot(self.new_id(), volume)

    def copy_volume(self, source, target, *args):
        """Copy a device to another on the running node, as Cinder does."""
        for region in range(machine.REGIONS):
            self.steps.run('%s: copy region %d' % (self.here.name, region),
                           kernel.error('injected'),
                           self.here.kernel.copy_region, source, target,
                           region)

    # The content of a volume

    def read_remote(self, path, block):
        """Read a block over iSCSI.

        :raises: Wait if there is no such target
        """
        iqn = path.rpartition('/')[2]
        for node in self.nodes.values():
            served = node.target.exports.get(iqn, (None,))[0]
            if served:
                return node.kernel.read(served, block)
        raise machine.Wait

    def content(self, row, when):
        """Return a volume's blocks, from the disks and the database.

        :param when: 'now', or 'safe': after a power cut of all nodes
        :raises: Lost
        """
        return self.content_of(row.name_id, self.place(row), when,
                               self._below)

    def place(self, row):
        """Return the node on which the driver has put a row's volume."""
        return self.by_host[(row.provider_id or row.host).partition('#')[0]]

    def _below(self, name_id, when):
        """Return the blocks of a clone's source, found by the database."""
        source = self.database.rows.get(name_id)
        if source is None:
            raise Lost('volume-%s has no source' % name_id)
        node = self.place(source)
        if not source.snapshot_id:
            return self.content_of(source.name_id, node, when, self._below)
        blocks = self.snapshot_content(node, source.snapshot_id, when)
        if blocks is None:
            raise Lost('snapshot %s is not on %s' % (source.snapshot_id,
                                                     node.name))
        return blocks

    def content_of(self, name_id, node, when, below):
        """Return the blocks of a logical volume and of its sources.

        :param below: function that returns the blocks of a clone's source
        """
        path = lv_path(name_id)
        volume = node.lvm.volumes.get(path)
        if volume is None:
            raise Lost('volume-%s is not on %s' % (name_id, node.name))
        here = getattr(node.kernel.disk(path), when)
        bitmap = self.bitmap(node, volume)
        if bitmap is None:
            return list(here)
        hydrated = getattr(bitmap, when)
        if len(hydrated) == machine.REGIONS:
            return list(here)
        there = below(name_id, when)
        return [here[block] if block // machine.BLOCKS in hydrated
                else there[block] for block in range(machine.LENGTH)]

    @staticmethod
    def bitmap(node, volume):
        """Return the metadata of a logical volume by LVM's tags, or None."""
        for tag in volume['tags']:
            if tag.startswith(logical_volumes.METADATA_TAG):
                path = '/dev/' + tag.removeprefix(
                    logical_volumes.METADATA_TAG)
                if path not in node.lvm.bitmaps:
                    raise Lost('the metadata %s is gone' % path)
                return node.lvm.bitmaps[path]
        return None

    def early_copies(self):
        """Return clones that hydrate from a source that can be written."""
        found = []
        for node in self.nodes.values():
            for name, device in node.kernel.devices.items():
                if not (device.own and device.own.hydration):
                    continue
                names, role = names_module.parse(name)
                source = self.database.rows.get(names.name_id)
                if source is None or not placeholders.is_placeholder(source):
                    continue
                home = self.by_host[lookups.backend_of(source)]
                path = names_module.Names(source.name_id).path()
                if home.kernel.writable(path):
                    found.append('%s copies from %s, which is not sealed' % (
                        name, home.name))
        return found

    def long_chains(self):
        """Return volumes that need more older homes than they may."""
        found = []
        for row in self.database.rows.values():
            if placeholders.is_placeholder(row):
                continue
            length, name_id = 0, row.name_id
            while placeholders.state_of(self.database.rows.get(name_id)) in (
                    State.SWITCHED, State.LOST):
                length += 1
                name_id = self.database.rows[name_id].name_id
            # An option is slow to read.
            if length and length > self.place(
                    row).driver.configuration.dmclone_chain_limit:
                found.append('volume %s needs %d older homes' % (row.id,
                                                                 length))
        return found

    def untagged_gates(self):
        """Return clones that can be written, but lack the tag for that."""
        found = []
        for node in self.nodes.values():
            for name, device in node.kernel.devices.items():
                if not device.own:
                    continue
                names, _role = names_module.parse(name)
                gate = node.kernel.get(names.of(names_module.GATE))
                tags = node.lvm.volumes[lv_path(names.name_id)]['tags']
                # The gate of a destination that is deleted has an error table.
                if gate and gate.kinds == 'linear' and (
                        not gate.suspended) and not any(
                            tag.startswith(logical_volumes.OPENED_TAG)
                            for tag in tags):
                    found.append('the gate of %s on %s is open, but the '
                                 'logical volume has no tag' % (
                                     name, node.name))
        return found

    @staticmethod
    def _base(node, names):
        """Return the device whose table says where the data is."""
        handle = node.kernel.get(names.path())
        if handle and handle.kinds and (
                handle.table[0].kind == 'snapshot-origin'):
            return node.kernel.get(handle.table[0].words[0])
        return handle

    def snapshot_content(self, node, snapshot_id, when='now'):
        """Return the blocks of a snapshot on a node, None if it is gone."""
        # LVM reserves names like that of a snapshot; Cinder adds a "_".
        found = node.lvm.volumes.get(
            '/dev/%s/_snapshot-%s' % (fake_cloud.GROUP, snapshot_id))
        if found is None:
            return self._followed_content(node, snapshot_id, when)
        if 'disk' in found and not any(tag.startswith(
                logical_volumes.TAKEN_TAG) for tag in found['tags']):
            return found['disk'].now
        taken = logical_volumes.LogicalVolume(
            fake_cloud.GROUP, snapshot_id, 0, True,
            frozenset(found['tags'])).taken
        blocks = self.content_of(taken.name_id, node, when, self._below)
        for region in found.get('saved', {}).values():
            for block, value in region.items():
                blocks[block] = value
        return blocks

    def _followed_content(self, node, snapshot_id, when):
        """Return the blocks of a snapshot that is a whole copy, or None."""
        for path, volume in node.lvm.volumes.items():
            if logical_volumes.FOLLOWED_TAG + snapshot_id in volume['tags']:
                return self.content_of(path.rpartition('/volume-')[2], node,
                                       when, self._below)
        return None

    def early_switches(self):
        """Return linear handles whose metadata is not safely complete."""
        found = []
        for node in self.nodes.values():
            for path, volume in node.lvm.volumes.items():
                bitmap = self.bitmap(node, volume)
                handle = bitmap and self._base(node, names_module.Names(
                    path.rpartition('/volume-')[2]))
                if (handle and handle.kinds == 'linear' and
                        len(bitmap.safe) < machine.REGIONS):
                    found.append('%s on %s is linear, its metadata is not '
                                 'safe' % (path, node.name))
        return found

    def early_releases(self):
        """Return sources that were released before their copies were safe."""
        found = []
        for row in self.database.rows.values():
            if placeholders.state_of(row) != State.RELEASED:
                continue
            node, names = self._owner_of(row.id), names_module.Names(row.id)
            handle = node and node.kernel.get(names.path())
            base = handle and self._base(node, names)
            # After a reboot there is nothing to flush, nor above a device
            # whose creation was interrupted before it had a table.
            if base and base.table and base.switched and not base.flushed:
                found.append('source %s is released, but its copy was not '
                             'flushed' % row.name_id)
        return found

    def _owner_of(self, name_id):
        """Return the node of the row that has a logical volume, or None."""
        return next((self.by_host[lookups.backend_of(row)] for row in
                     self.database.rows.values() if row.name_id == name_id),
                    None)
