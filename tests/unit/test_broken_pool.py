# SPDX-License-Identifier: Apache-2.0
"""A thin pool that cannot be activated, in a group with thick volumes."""

from cinder.brick.local_dev import lvm
import ddt
import fixtures
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.node import lvm as lvm_module
from dmclone_driver.node.names import Names
from dmclone_driver import stats
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit.fakes import kernel
from tests.unit.fakes import storage

GIB = storage.GIB
POOL = '/dev/volumes/volumes-pool'
SAYS = 'Thin pool volumes/volumes-pool cannot be activated: Check of pool '


class BrokenPoolTestCase(base.CloudTestCase):
    """The volume of each test is thick; another one is thin."""

    def setUp(self):
        super().setUp()
        self.a.lvm_type = 'thin'
        self.restart()
        self.thin = self.a.create()
        self.log = self.useFixture(fixtures.FakeLogger())

    def restart(self):
        self.a.stop()
        self.a.start()
        self.cloud.settle()

    def boot(self, broken=True):
        """Cut the power; LVM then activates what it can."""
        self.a.reboot()
        self.a.lvm.volumes[POOL]['broken'] = broken
        for volume in self.a.lvm.volumes.values():
            volume['active'] = not (broken and (
                volume.get('pool') or volume.get('is_pool')))
        self.cloud.steps.start()
        self.a.start()
        self.cloud.settle()

    def handle(self, volume):
        return self.a.kernel.get(
            Names(self.cloud.row(volume.id).name_id).path())

    def stats(self):
        with self.cloud.on(self.a):
            self.a.driver.get_volume_stats(refresh=True)
        return self.a.driver._stats['pools'][0]

    def activations(self):
        """Return the commands that have tried to activate something."""
        return [step for step in self.cloud.steps.log
                if '--activate y' in step or ': group activate' in step]


@ddt.ddt
class StartTestCase(BrokenPoolTestCase):

    @ddt.data('thin', 'auto')
    def test_start(self, kind):
        """Thick volumes have their handles, and each thin one its line."""
        self.a.lvm_type = kind
        self.boot()
        self.a.kernel.write(Names(self.volume.name_id).path())
        self.assertIsNone(self.handle(self.thin))
        self.assertEqual(1, self.log.output.count(SAYS))
        self.assertIn('Recovering volume %s failed' % self.thin.id,
                      self.log.output)
        self.assertNotIn(self.volume.id, self.log.output)
        self.assertEqual('thin', self.a.driver.configuration.lvm_type)
        self.assertEqual(self.a.lvm.names(), sorted(
            each.name for each in self.cloud.rows()))

    def test_pool_is_checked_once(self):
        """Each time all is tried, not for each volume."""
        for _number in range(3):
            self.a.create()
        self.a.reboot()
        self.a.lvm.volumes[POOL]['broken'] = True
        self.cloud.steps.start()
        self.a.start()
        self.cloud.settle()
        self.assertEqual(1, len(self.of_pool()))
        self.assertEqual(4, len(self.a.parts._recovery.failed))
        for number in range(2, 4):
            self.cloud.pass_time(300)
            self.cloud.watch()
            self.assertEqual(number, len(self.of_pool()))

    def of_pool(self):
        return [step for step in self.activations()
                if self.volume.name not in step]

    def test_thick_first(self):
        """What peers wait for does not wait for the pool."""
        self.boot()
        done, recovery = [], self.a.parts._recovery
        for name in ('_recover', '_clean_up'):
            self.patch('dmclone_driver.move.recovery.Recovery.' + name,
                       new=lambda each, context, row, *args: done.append(
                           row.id))
        with self.cloud.on(self.a):
            recovery.resume(self.context, [
                self.cloud.row(each.id) for each in (self.thin, self.volume)])
        self.assertEqual([self.volume.id, *2 * [self.thin.id]], done)

    def test_heals(self):
        """When it can be activated its volumes are used, without a start."""
        self.boot()
        self.assertEqual(0, self.stats()['free_capacity_gb'])
        self.a.lvm.volumes[POOL]['broken'] = False
        self.cloud.pass_time(300)
        self.cloud.watch(3)
        self.a.kernel.write(Names(self.thin.name_id).path())
        self.assertEqual({}, self.a.parts._recovery.failed)
        self.assertEqual(94.05, self.stats()['free_capacity_gb'])
        other = self.a.create()
        self.assertEqual(POOL, self.a.lvm.volumes[
            '/dev/volumes/' + other.name]['pool'])

    def test_volume_that_fails_by_itself(self):
        """Others are used as soon as the kernel has the pool."""
        others = [self.a.create() for _number in range(3)]
        self.boot()
        self.a.lvm.volumes[POOL].update(broken=False)
        lost = '/dev/volumes/' + self.thin.name
        activate = self.a.lvm.activate

        def fail(lvm, path, *args):
            if path == lost:
                # LVM leaves the pool that it has activated for it.
                activate(POOL)
                raise kernel.error('no such thin device', code=5)
            activate(path, *args)
        self.patch('tests.unit.fakes.storage.Lvm.activate', new=fail)
        self.cloud.pass_time(300)
        self.cloud.watch(3)
        self.assertEqual({self.thin.id}, set(self.a.parts._recovery.failed))
        for each in others:
            self.assertIsNotNone(self.handle(each))

    def test_check_takes_long(self):
        """LVM waits for it, which may be longer than other commands."""
        self.boot()
        run = self.a.lvm.lvm
        limits = {}

        def remember(lvm, arguments, environment, timeout):
            limits[' '.join(arguments)] = timeout
            return run(arguments, environment, timeout)
        self.patch('tests.unit.fakes.storage.Lvm.lvm', new=remember)
        self.boot()
        self.cloud.pass_time(300)
        self.cloud.watch()
        self.assertEqual({lvm_module.TIMEOUT_OF_POOL}, {
            limit for command, limit in limits.items()
            if command.startswith('lvchange --activate y')})

    def test_creation(self):
        """It fails with LVM's reason, and no thick volume is created."""
        self.boot()
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.a.create)
        self.assertIn('Check of pool volumes/volumes-pool', error.stderr)
        self.assertEqual(2, len(self.a.lvm.names()))

    def test_copy(self):
        """There is no room for the copy of a volume of another node."""
        self.boot()
        volume = self.b.create()
        error = self.assertRaises(exception.NoRoomOnPeer, self.cloud.attach,
                                  volume, self.a)
        self.assertIn('only 0.00 GiB', error.msg)
        self.assertEqual(self.b.pool, self.cloud.row(volume.id).host)

    def test_moves_away(self):
        """A thick volume of the node moves as always."""
        self.boot()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.row().host)

    def test_stats(self):
        """The node has no room, and does what is due each minute."""
        self.boot()
        later = self.patch('dmclone_driver.parts.Parts.look_around')
        pool = self.stats()
        self.assertEqual(
            (95 * 99 / 100, 0, 2, '0', True), tuple(pool[key] for key in (
                'total_capacity_gb', 'free_capacity_gb',
                'provisioned_capacity_gb', 'goodness_function',
                'thin_provisioning_support')))
        later.assert_called_once()
        with self.cloud.on(self.a):
            report = self.a.parts.reporter.report(self.context)
        self.assertEqual(0, report.free)

    def test_stats_later(self):
        """A pool that an operator deactivates while the service runs."""
        self.a.lvm.volumes[POOL]['active'] = False
        self.assertEqual(0, self.stats()['free_capacity_gb'])
        self.a.lvm.volumes[POOL]['active'] = True
        self.assertEqual(94.05, self.stats()['free_capacity_gb'])

    @ddt.data('thin', 'auto')
    def test_command(self, kind):
        """It neither activates the pool nor fails."""
        self.boot()
        self.cloud.steps.start()
        self.a.lvm_type = kind
        with self.cloud.on(self.a):
            backend = self.a._make_driver().open_backend()
        self.assertEqual([], self.activations())
        self.assertEqual((True, 'volumes-pool'), (
            backend.thin, backend.group.vg_thin_pool))

    def test_pool_that_can_be_activated(self):
        self.boot(broken=False)
        self.assertIsNotNone(self.handle(self.thin))
        self.assertNotIn('cannot be activated', self.log.output)


class RefusalsTestCase(BrokenPoolTestCase):
    """What is refused as before."""

    def refused(self):
        self.a.reboot()
        error = self.assertRaises(exception.BadConfiguration, self.a.start)
        self.assertNotIn(SAYS, self.log.output)
        return error.msg

    def test_no_pool(self):
        """Cinder cannot create one."""
        for path in list(self.a.lvm.volumes):
            if path == POOL or self.a.lvm.volumes[path]['pool']:
                del self.a.lvm.volumes[path]
        self.patch('tests.unit.fakes.storage.Group.create_thin_pool',
                   side_effect=processutils.ProcessExecutionError(
                       stderr='no free extents'))
        self.assertIn('no free extents', self.refused())

    def test_no_group(self):
        del self.a.lvm.groups[cloud.GROUP]
        self.assertIn('create it with vgcreate', self.refused())


class CinderTestCase(base.PlainTestCase):
    """Cinder's own class, and what LVM prints of an inactive pool."""

    def group(self, printed):
        group = lvm.LVM.__new__(lvm.LVM)
        group.vg_name, group.vg_thin_pool = 'volumes', 'volumes-pool'
        group._root_helper = None
        group._run_lvm_command = lambda command: (printed, '')
        group.get_all_volume_groups = lambda helper, name: [
            {'size': 100, 'available': 5, 'lv_count': 1, 'uuid': ''}]
        group.get_lv_info = lambda helper, name: [
            {'vg': name, 'name': 'volumes-pool', 'size': '95.00'}]
        return group

    def test_inactive(self):
        group = self.group('  95.00:\n')
        self.assertRaises(ValueError, group.update_volume_group_info)
        for _time in range(2):
            stats.accept_inactive_pool(group)
        group.update_volume_group_info()
        self.assertEqual((95, 0), (group.vg_thin_pool_size,
                                   group.vg_thin_pool_free_space))

    def test_active(self):
        group = self.group('  95.00:10.00\n')
        stats.accept_inactive_pool(group)
        group.update_volume_group_info()
        self.assertEqual(85.5, group.vg_thin_pool_free_space)
