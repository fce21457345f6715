# SPDX-License-Identifier: Apache-2.0
"""A node's simulated LVM: its programs, and Cinder's volume group object."""

import json

from dmclone_driver.node import lvm as lvm_module
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
        #: {path: dict of size, active, tags, origin}; of thin ones also the
        #: path of their pool and what they have allocated, in bytes
        self.volumes = {}
        #: Groups whose free blocks have signatures, about which LVM asks.
        self.signatures = set()
        #: Formatted metadata, {path: {'hydrated': regions}}.
        self.bitmaps = {}
        #: The last number of a thin volume in its pool.
        self._numbers = 0
        self.kernel = None

    def outside(self):
        """Return its state, of which text can be made."""
        return (self.groups, self.disks, self.tags, self.volumes,
                self.bitmaps)

    def at(self, path):
        """Return an active logical volume, or None."""
        found = self.volumes.get(path)
        return found if found and found['active'] else None

    def bitmap(self, path):
        """Return the state of formatted metadata, or None."""
        return self.bitmaps.get(path)

    def names(self):
        """Return the names of all logical volumes but pools."""
        return sorted(path.rpartition('/')[2] for path, volume in
                      self.volumes.items() if not volume.get('is_pool'))

    def free(self, group):
        """Return the free bytes of a group."""
        return self.groups[group] - sum(
            volume['size'] for path, volume in self.volumes.items()
            if path.startswith('/dev/%s/' % group) and
            not volume.get('pool'))

    def add(self, group, name, size, origin=None, pool=None):
        """Create a logical volume.

        :param pool: path of the pool of a thin one
        """
        path = '/dev/%s/%s' % (group, name)
        if path in self.volumes:
            raise kernel.error('Logical Volume "%s" already exists in volume '
                               'group "%s"' % (name, group), code=5)
        if pool and pool not in self.volumes:
            raise kernel.error('Thin pool %s not found' % pool)
        self.refuse_broken(pool)
        if not pool and size > self.free(group):
            raise kernel.error('insufficient free space')
        self.volumes[path] = {'size': size, 'active': True, 'tags': set(),
                              'origin': origin, 'pool': pool, 'allocated': 0}
        if pool:
            self._numbers += 1
            self.volumes[path]['thin_id'] = self._numbers

    def refuse_broken(self, path):
        """Refuse what activates a pool, if that cannot be activated."""
        if path and self.volumes[path].get('broken'):
            raise kernel.error(
                '  Check of pool %s failed (status:1). Manual repair required!'
                % path.removeprefix('/dev/'), code=5)

    def add_pool(self, group, size):
        """Create the pool that Cinder uses."""
        self.add(group, group + '-pool', size)
        self.volumes['/dev/%s/%s-pool' % (group, group)]['is_pool'] = True

    def make_thin(self, group):
        """Put all logical volumes of a group into a new pool.

        :returns: the pool, whose ``mode`` can be set
        """
        self.add_pool(group, GIB)
        pool = '/dev/%s/%s-pool' % (group, group)
        for path, volume in self.volumes.items():
            if path.startswith('/dev/%s/' % group) and path != pool:
                volume['pool'] = pool
        return self.volumes[pool]

    def snapshot(self, group, name, origin, skipped=False):
        """Create a logical volume with the content of another.

        :param skipped: whether it is skipped at activation
        """
        self.add(group, name, self.volumes[origin]['size'], origin,
                 self.volumes[origin].get('pool'))
        path = '/dev/%s/%s' % (group, name)
        self.volumes[path].update(
            skipped=skipped, active=not skipped,
            allocated=self.volumes[origin].get('allocated', 0))
        self.kernel.copy_disk(origin, path)

    def convert(self, store, origin):
        """Make a logical volume a snapshot of another one.

        :param store: path of the blocks that were saved of the other
        """
        volume = self.volumes[store]
        volume.update(origin=origin, chunk=65536, store=volume['size'],
                      size=self.volumes[origin]['size'])

    def drop(self, path):
        """Delete a logical volume."""
        if path not in self.volumes:
            raise kernel.error('Failed to find logical volume %s' % path)
        if self.kernel.users(path):
            raise kernel.error('%s is used by another device' % path)
        pool = self.volumes[path].get('pool')
        del self.volumes[path]
        self.bitmaps.pop(path, None)
        self.forget_origin(path)
        self.tell_deletion(pool)

    def tell_deletion(self, pool):
        """Tell a pool what LVM has committed, as LVM does.

        :param pool: its path, None if the logical volume was thick
        """
        if pool and self.volumes[pool].get('mode', 'rw') not in (
                'rw', 'out_of_data_space'):
            self.kernel.violations.append('a pool has missed a deletion')
            raise kernel.error('Failed to update thin pool %s.' % pool)

    def forget_origin(self, path):
        """Forget the origin of thin snapshots, which do not need it."""
        for volume in self.volumes.values():
            if volume['origin'] == path and volume.get('pool'):
                volume['origin'] = None

    def used(self, path):
        """Return the bytes that a pool has allocated, without sharing."""
        if self.volumes[path].get('full'):
            return self.volumes[path]['size']
        return sum(volume['allocated'] for volume in self.volumes.values()
                   if volume.get('pool') == path and not volume['origin'])

    def pools(self):
        """Return the names in device-mapper of active pools."""
        return [lvm_module.device(*path.split('/')[2:], 'tpool')
                for path, volume in self.volumes.items()
                if volume.get('is_pool') and volume['active']]

    def status(self, name):
        """Return the status of an active pool, or of a logical volume.

        The blocks of a pool have 64 KiB, and its metadata 1000 blocks.
        """
        for path, volume in self.volumes.items():
            group, here = path.split('/')[2:]
            if not volume['active']:
                continue
            if volume.get('is_pool') and name == lvm_module.device(
                    group, here, '' if volume.get('unused') else 'tpool'):
                return self._pool_status(path, volume)
            if name == lvm_module.device(group, here):
                return '0 %d %s\n' % (
                    volume['size'] // 512,
                    'thin Fail' if volume.get('failed') else
                    'thin %d -' % (volume['allocated'] // 512)
                    if volume.get('pool') else 'linear ')
        return None

    def disks_below(self, name):
        """Return the disks below an active thin volume, None of others."""
        for path, volume in self.volumes.items():
            if volume['active'] and volume.get('pool') and (
                    name == lvm_module.device(*path.split('/')[2:])):
                origin = volume
                while origin is not None and origin.get('pool'):
                    origin = self.volumes.get(origin['origin'])
                return ['pool'] if origin is None else ['pool', 'origin']
        return None

    def _pool_status(self, path, volume):
        used, total = (size >> 16
                       for size in (self.used(path), volume['size']))
        return ('0 %d thin-pool 1 %d/1000 %d/%d %s %s discard_passdown '
                'queue_if_no_space - 1024\n' % (
                    volume['size'] // 512,
                    round(float(volume.get('metadata') or 0) * 10), used,
                    total, '77' if volume.get('copied') else '-',
                    volume.get('mode', 'rw')))

    def dump(self, pool, metadata, device, seconds):
        """Replace privsep.thin.dump.

        Blocks have 64 KiB, see :meth:`.kernel.Kernel.mapped`.
        """
        return self.steps.run(
            '%s: thin_dump %s %d' % (self.node, pool, device),
            kernel.error('injected'), self._dump, pool, metadata, device)

    def _dump(self, pool, metadata, device):
        path = self._pool_of(pool)
        if metadata != '/dev/mapper/' + lvm_module.device(
                *path.split('/')[2:-1], path.rpartition('/')[2] + '_tmeta'):
            raise kernel.error('there is no device %s' % metadata)
        found = next((each for each, volume in self.volumes.items()
                      if volume.get('pool') == path and
                      volume['thin_id'] == device), None)
        if self.volumes[path].get('copied') or found is None:
            raise kernel.error('Device or resource busy')
        mapped = self.kernel.mapped(found)
        return (
            '<superblock uuid="" time="0" transaction="1" version="2" '
            'data_block_size="128" nr_data_blocks="0">'
            '<device dev_id="%d" mapped_blocks="%d" transaction="0" '
            'creation_time="0" snap_time="0">%s</device></superblock>' % (
                device, sum(count for _first, count in mapped), ''.join(
                    '<range_mapping origin_begin="%d" data_begin="0" '
                    'length="%d" time="0"/>' % each for each in mapped)))

    def release(self, pool):
        """Replace privsep.thin.release."""
        self.steps.run('%s: release %s' % (self.node, pool),
                       kernel.error('injected'), self._release, pool)
        return True

    def _release(self, pool):
        self.volumes[self._pool_of(pool)]['copied'] = False

    def _pool_of(self, device):
        """Return the path of the pool with a name in device-mapper."""
        return next(path for path, volume in self.volumes.items()
                    if volume.get('is_pool') and device == lvm_module.device(
                        *path.split('/')[2:], 'tpool'))

    def percent(self, path, volume):
        """Return what of a logical volume is allocated, as LVM prints it."""
        if not volume['active'] or not (
                volume.get('pool') or volume.get('is_pool')):
            return ''
        return '%.2f' % (100 * (self.used(path) if volume.get('is_pool') else
                                volume['allocated']) / volume['size'])

    def activate(self, path, skipped=False):
        """Activate a logical volume.

        :param skipped: whether also one that is marked as skipped
        """
        volume = self.volumes[path]
        if skipped or not volume.get('skipped'):
            self.refuse_broken(path if volume.get('is_pool') else
                               volume.get('pool'))
            volume['active'] = True
            if volume.get('pool'):
                self.volumes[volume['pool']]['active'] = True

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
                                        '').rpartition('/')[2],
                             'pool_lv': (volume.get('pool') or
                                         '').rpartition('/')[2],
                             'lv_layout': ('thin,sparse' if volume.get('pool')
                                           else 'thin,pool' if
                                           volume.get('is_pool') else
                                           'linear'),
                             'data_percent': self.percent(path, volume),
                             'metadata_percent': volume.get(
                                 'metadata', '1.00' if volume.get('is_pool')
                                 else ''),
                             'thin_id': str(volume.get('thin_id', '')),
                             'zero': volume.get('zero', 'zero')})
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
        thin = given.get('--type') == 'thin'
        size = given['--virtualsize' if thin else '--size']
        self.add(
            group, given['--name'], int(size[:-1]) * UNITS[size[-1]],
            pool='/dev/%s/%s' % (group, given['--thinpool']) if thin else None)
        self.volumes['/dev/%s/%s' % (group, given['--name'])]['tags'] = {
            value for option, value in zip(options[1::2], options[2::2])
            if option == '--addtag'}

    def _take(self, origin, options):
        name = options[options.index('--name') + 1]
        group = origin.partition('/')[0]
        thin = self.volumes['/dev/' + origin].get('pool')
        self.snapshot(group, name, '/dev/' + origin,
                      bool(thin) and '--setactivationskip' not in options)
        taken = self.volumes['/dev/%s/%s' % (group, name)]
        taken['tags'] = {value for option, value in zip(options, options[1:])
                         if option == '--addtag'}
        if bool(thin) == ('--extents' in options):
            # With a size LVM makes a snapshot of the other kind.
            raise kernel.error('a snapshot of the wrong kind')
        if not thin:
            taken.update(chunk=65536, store=snapshot_devices.store_size(
                taken['size']))

    def _lvchange(self, arguments):
        path = '/dev/' + arguments.pop()
        volume = self.volumes[path]
        skipped = '--ignoreactivationskip' in arguments
        while arguments:
            option = arguments.pop(0)
            if option == '--addtag':
                volume['tags'].add(arguments.pop(0))
            elif option == '--deltag':
                volume['tags'].discard(arguments.pop(0))
            elif option == '--activate':
                if arguments.pop(0) == 'y':
                    self.activate(path, skipped)
                else:
                    volume['active'] = False

    def _lvremove(self, arguments):
        self.drop('/dev/' + arguments[-1])


class Group:
    """Replaces cinder.brick.local_dev.lvm.LVM."""

    def __init__(self, lvm, name, lvm_type='default'):
        self._lvm = lvm
        self.vg_name = name
        self.vg_thin_pool = None
        if lvm_type == 'thin':
            if self.get_volume(name + '-pool') is None:
                self.create_thin_pool(name + '-pool')
            self.vg_thin_pool = name + '-pool'
            self.activate_lv(self.vg_thin_pool)

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

    @property
    def vg_thin_pool_size(self):
        return round(self._pool()['size'] / GIB, 2)

    @property
    def vg_thin_pool_free_space(self):
        return self._get_thin_pool_free_space(self.vg_name,
                                              self.vg_thin_pool)

    def _get_thin_pool_free_space(self, vg_name, thin_pool_name):
        """Fail as Cinder does if LVM prints no percentage."""
        path, pool = self._path(thin_pool_name), self._pool()
        float(self._lvm.percent(path, pool))
        return round((pool['size'] - self._lvm.used(path)) / GIB, 2)

    @property
    def vg_provisioned_capacity(self):
        return round(sum(
            volume['size'] for path, volume in self._lvm.volumes.items()
            if path.startswith('/dev/%s/' % self.vg_name) and
            not volume.get('is_pool')) / GIB, 2)

    def _pool(self):
        return self._lvm.volumes[self._path(self.vg_thin_pool)]

    def create_thin_pool(self, name=None, size_str=None):
        self._step('create ' + name, self._lvm.add_pool, self.vg_name,
                   self._lvm.free(self.vg_name) * 95 // 100)

    def update_volume_group_info(self):
        self._step('look', lambda: self.vg_thin_pool and
                   self.vg_thin_pool_free_space)

    def create_volume(self, name, size_str, lv_type='default',
                      mirror_count=0):
        size = int(size_str[:-1]) * UNITS[size_str[-1]]
        thin = lv_type == 'thin'
        if not thin and self.vg_name in self._lvm.signatures:
            raise kernel.error('Aborted wiping of LVM2_member.', code=5)
        self._step('create ' + name, self._lvm.add, self.vg_name, name, size,
                   None, self._path(self.vg_thin_pool) if thin else None)

    def create_lv_snapshot(self, name, source_lv_name, lv_type='default'):
        origin = self._path(source_lv_name)
        self._step('snapshot ' + name, self._lvm.snapshot, self.vg_name, name,
                   origin, lv_type == 'thin')

    def delete(self, name):
        """Delete like Cinder, with "lvremove -f": with thick snapshots."""
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
        """Whether LVM's attributes say so, which they do of thick ones."""
        volume = self._lvm.volumes[self._path(name)]
        return bool(volume['origin'] and not volume.get('pool'))

    def lv_is_open(self, name):
        return bool(self._lvm.kernel.users(self._path(name)))

    def lv_has_snapshot(self, name):
        return any(volume['origin'] == self._path(name) and
                   not volume.get('pool')
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
        if not volume.get('pool') and (
                size - volume['size'] > self._lvm.free(self.vg_name)):
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
        self._lvm.activate(path, skipped=True)

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
        volumes, origin = self._lvm.volumes, self._lvm.volumes[path]['origin']
        if volumes[path].get('pool'):
            if volumes[path]['active'] or volumes[origin]['active']:
                self._lvm.kernel.violations.append(
                    'LVM may merge %s at any time' % path)
            self._lvm.forget_origin(origin)
        self._lvm.kernel.merge_disk(origin, path)
        self._lvm.tell_deletion(volumes.pop(path).get('pool'))
