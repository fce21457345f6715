# SPDX-License-Identifier: Apache-2.0
"""A node's simulated LVM: its programs, and Cinder's volume group object."""

import json

from dmclone_driver.node import snapshot_devices
from tests.unit.fakes import kernel

GIB = 1024 ** 3
UNITS = {'b': 1, 'm': 1024 ** 2, 'g': GIB}


class Lvm:
    """Logical volumes and their content; survives a reboot."""

    def __init__(self, steps, name, groups):
        self.steps = steps
        self.node = name
        #: {group: bytes}
        self.groups = groups
        #: {path of a disk: its volume group, or other content}
        self.disks = {}
        #: {path of a disk: bytes}, if not a GiB.
        self.sizes = {}
        #: {group: set of tags}
        self.tags = {}
        #: {path: dict of size, active, tags, origin}
        self.volumes = {}
        #: Groups whose free blocks have signatures, about which LVM asks.
        self.signatures = set()
        #: Formatted metadata, {path: {'hydrated': regions}}.
        self.bitmaps = {}
        self.kernel = None

    def at(self, path):
        """Return an active logical volume, or None."""
        found = self.volumes.get(path)
        return found if found and found['active'] else None

    def bitmap(self, path):
        """Return the state of formatted metadata, or None."""
        return self.bitmaps.get(path)

    def names(self):
        """Return the names of all logical volumes."""
        return sorted(path.rpartition('/')[2] for path in self.volumes)

    def free(self, group):
        """Return the free bytes of a group."""
        return self.groups[group] - sum(
            volume['size'] for path, volume in self.volumes.items()
            if path.startswith('/dev/%s/' % group))

    def add(self, group, name, size, origin=None):
        """Create a logical volume."""
        path = '/dev/%s/%s' % (group, name)
        if path in self.volumes:
            raise kernel.error('%s already exists' % name)
        if size > self.free(group):
            raise kernel.error('insufficient free space')
        self.volumes[path] = {'size': size, 'active': True, 'tags': set(),
                              'origin': origin}

    def snapshot(self, group, name, origin):
        """Create a logical volume with the content of another."""
        self.add(group, name, self.volumes[origin]['size'], origin)
        self.kernel.copy_disk(origin, '/dev/%s/%s' % (group, name))

    def drop(self, path):
        """Delete a logical volume."""
        if path not in self.volumes:
            raise kernel.error('Failed to find logical volume %s' % path)
        if self.kernel.users(path):
            raise kernel.error('%s is used by another device' % path)
        del self.volumes[path]
        self.bitmaps.pop(path, None)

    def lvm(self, arguments, environment, timeout):
        """Replace privsep.command.lvm."""
        verb, *rest = arguments
        return self.steps.run(
            '%s: %s' % (self.node, ' '.join(arguments)),
            kernel.error('injected'), getattr(self, '_' + verb), rest)

    def _lvs(self, arguments):
        wanted = arguments[arguments.index('--nosuffix') + 1:
                           arguments.index('-o')]
        rows = []
        for path, volume in self.volumes.items():
            group, name = path.split('/')[2:]
            if not wanted or {group, path.removeprefix('/dev/'),
                              'lv_name="%s"' % name}.intersection(wanted):
                rows.append({'vg_name': group, 'lv_name': name,
                             # Of a snapshot, what it can save.
                             'lv_size': str(volume.get('store') or
                                            volume['size']),
                             'chunk_size': str(volume.get('chunk', 4096)),
                             'lv_active': ('active' if volume['active']
                                           else ''),
                             'lv_tags': ','.join(sorted(volume['tags'])),
                             'origin': (volume['origin'] or
                                        '').rpartition('/')[2]})
        for text in wanted:
            if text.partition('/')[0] not in self.groups and (
                    '=' not in text and text != '--select'):
                raise kernel.error('Volume group "%s" not found' % text,
                                   code=5)
        if not rows and '/' in ''.join(wanted[:1]):
            raise kernel.error('Failed to find logical volume "%s"' %
                               wanted[0], code=5)
        return json.dumps({'report': [{'lv': rows}]})

    def _vgs(self, arguments):
        group = arguments[arguments.index('-o') - 1]
        if group not in self.groups:
            raise kernel.error('Volume group "%s" not found' % group, code=5)
        return json.dumps({'report': [{'vg': [
            {'vg_name': group, 'vg_size': str(self.groups[group]),
             'vg_free': str(self.free(group)),
             'lv_count': str(sum(path.startswith('/dev/%s/' % group)
                                 for path in self.volumes)),
             'vg_tags': ','.join(self.tags.get(group, ()))}]}]})

    def _pvs(self, arguments):
        path = arguments[arguments.index('-o') - 1]
        if self.disks.get(path) not in self.groups:
            raise kernel.error('Failed to find physical volume "%s".' % path,
                               code=5)
        return json.dumps({'report': [{'pv': [
            {'vg_name': self.disks[path]}]}]})

    def _vgcreate(self, arguments):
        name, path = arguments[-2:]
        if self.disks.get(path):
            raise kernel.error('signature detected on %s' % path, code=5)
        self.disks[path] = name
        # LVM uses the first MiB.
        self.groups[name] = self.sizes.get(path, GIB) - UNITS['m']
        self.tags[name] = {arguments[arguments.index('--addtag') + 1]}

    def _vgremove(self, arguments):
        del self.groups[arguments[-1]]

    def _lvcreate(self, arguments):
        *options, group = arguments
        if options[0] != '--yes':
            raise kernel.error('Aborted wiping of LVM2_member.', code=5)
        if '--snapshot' in options:
            self._take(group, options)
            return
        given = dict(zip(options[1::2], options[2::2]))
        self.add(group, given['--name'], int(given['--size'][:-1]))
        self.volumes['/dev/%s/%s' % (group, given['--name'])]['tags'] = {
            value for option, value in zip(options[1::2], options[2::2])
            if option == '--addtag'}

    def _take(self, origin, options):
        name = options[options.index('--name') + 1]
        group = origin.partition('/')[0]
        self.snapshot(group, name, '/dev/' + origin)
        taken = self.volumes['/dev/%s/%s' % (group, name)]
        taken.update(chunk=65536, store=snapshot_devices.store_size(
            taken['size']))

    def _lvchange(self, arguments):
        path = '/dev/' + arguments.pop()
        volume = self.volumes[path]
        while arguments:
            option = arguments.pop(0)
            if option == '--addtag':
                volume['tags'].add(arguments.pop(0))
            elif option == '--deltag':
                volume['tags'].discard(arguments.pop(0))
            elif option == '--activate':
                volume['active'] = arguments.pop(0) == 'y'

    def _lvremove(self, arguments):
        self.drop('/dev/' + arguments[-1])


class Group:
    """Replaces cinder.brick.local_dev.lvm.LVM."""

    def __init__(self, lvm, name):
        self._lvm = lvm
        self.vg_name = name

    def _step(self, what, function, *args):
        return self._lvm.steps.run(
            '%s: group %s' % (self._lvm.node, what),
            kernel.error('injected'), function, *args)

    def _path(self, name):
        return '/dev/%s/%s' % (self.vg_name, name)

    @property
    def vg_size(self):
        return round(self._lvm.groups[self.vg_name] / GIB, 2)

    @property
    def vg_free_space(self):
        return round(self._lvm.free(self.vg_name) / GIB, 2)

    def update_volume_group_info(self):
        self._step('look', lambda: None)

    def create_volume(self, name, size_str, lv_type='default',
                      mirror_count=0):
        size = int(size_str[:-1]) * UNITS[size_str[-1]]
        if self.vg_name in self._lvm.signatures:
            raise kernel.error('Aborted wiping of LVM2_member.', code=5)
        self._step('create ' + name, self._lvm.add, self.vg_name, name, size)

    def create_lv_snapshot(self, name, source_lv_name, lv_type='default'):
        origin = self._path(source_lv_name)
        self._step('snapshot ' + name, self._lvm.snapshot, self.vg_name, name,
                   origin)

    def delete(self, name):
        """Delete like Cinder, with "lvremove -f": with all snapshots."""
        self._step('delete ' + name, self._drop, self._path(name))

    def _drop(self, path):
        self._lvm.drop(path)
        for other, volume in list(self._lvm.volumes.items()):
            if volume['origin'] == path:
                self._lvm.drop(other)

    def get_volume(self, name):
        found = self._lvm.volumes.get(self._path(name))
        return found and {'name': name, 'size': '%.2f' % (
            found['size'] / GIB)}

    def get_volumes(self):
        return [self.get_volume(name) for name in self._lvm.names()
                if self.get_volume(name)]

    def lv_is_snapshot(self, name):
        return bool(self._lvm.volumes[self._path(name)]['origin'])

    def lv_is_open(self, name):
        return bool(self._lvm.kernel.users(self._path(name)))

    def lv_has_snapshot(self, name):
        return any(volume['origin'] == self._path(name)
                   for volume in self._lvm.volumes.values())

    def extend_volume(self, lv_name, new_size):
        """Extend like Cinder: a failure leaves an origin inactive."""
        origin = self.lv_has_snapshot(lv_name)
        if origin:
            self.deactivate_lv(lv_name)
        volume = self._lvm.volumes[self._path(lv_name)]
        size = int(new_size[:-1]) * UNITS[new_size[-1]]
        if volume['size'] == size:
            raise kernel.error('  New size (768 extents) matches existing '
                               'size (768 extents).')
        if size - volume['size'] > self._lvm.free(self.vg_name):
            raise kernel.error('  Insufficient free space')
        volume['size'] = size
        if origin:
            self.activate_lv(lv_name)

    def rename_volume(self, lv_name, new_name):
        self._lvm.volumes[self._path(new_name)] = (
            self._lvm.volumes.pop(self._path(lv_name)))

    def activate_lv(self, name, is_snapshot=False, permanent=False):
        if name.startswith('snapshot'):
            # LVM reserves such names.
            name = '_' + name
        self._step('activate ' + name, self._activate, self._path(name))

    def _activate(self, path):
        self._lvm.volumes[path]['active'] = True

    def deactivate_lv(self, name):
        self._step('deactivate ' + name, self._deactivate, self._path(name))

    def _deactivate(self, path):
        if self._lvm.kernel.users(path):
            raise kernel.error('%s in use' % path)
        self._lvm.volumes[path]['active'] = False

    def revert(self, snapshot_name):
        self._step('revert ' + snapshot_name, self._merge,
                   self._path(snapshot_name))

    def _merge(self, path):
        self._lvm.kernel.merge_disk(self._lvm.volumes[path]['origin'], path)
        del self._lvm.volumes[path]
