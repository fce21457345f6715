# SPDX-License-Identifier: Apache-2.0
"""What the plugin does in each phase, for the stand-in and for DevStack."""

import pathlib
import re

import ddt
import fixtures

from tests.devstack import harness

HELPERS = ('lioadm', 'tgtadm')
ADDRESSES = {4: ('192.0.2.11', ''),
             6: ('2001:db8::11',
                 'SERVICE_IP_VERSION=6\nHOST_IPV6=2001:db8::11')}
#: A sample of local.conf, and more lines for it.
ROLES = {'controller': ('local.conf.controller', ''),
         'subnode': ('local.conf.subnode', 'HOST_IP=192.0.2.11'),
         'no c-vol': ('local.conf.controller',
                      'ENABLED_SERVICES=key,n-api,n-cpu,g-api,c-api,c-sch')}
MATRIX = [(helper, version, role) for helper in HELPERS
          for version in ADDRESSES for role in ROLES]
GROUP = 'stack-volumes-dmclone'
UNIT = 'etc/systemd/system/devstack@c-vol.service'
LVMLOCAL = 'etc/lvm/lvmlocal.conf'
RULE = 'etc/udev/rules.d/11-dm-dmclone.rules'
MULTIPATH = 'etc/multipath/conf.d/dmclone.conf'
FILTERS = 'etc/cinder/rootwrap.d/dmclone.filters'
IQN = 'iqn.2010-10.org.openstack:'
#: Devices of a volume that hydrates and has a snapshot; each with the device
#: below it.
DEVICES = ('DMCLONE-source-1 LVM-1', 'DMCLONE-gate-1 LVM-1',
           'DMCLONE-clone-1 DMCLONE-source-1',
           'DMCLONE-clone-1 DMCLONE-gate-1',
           'DMCLONE-origin-1 DMCLONE-clone-1',
           'DMCLONE-handle-1 DMCLONE-origin-1',
           'DMCLONE-snapshot-2 DMCLONE-origin-1',
           'DMCLONE-export-3 LVM-3', 'LVM-1 -', 'LVM-3 -')
REFUSED = {
    'another target of the plugin': (
        'DMCLONE_TARGET_HELPER=tgtadm', (), 'set CINDER_TARGET_HELPER'),
    'another target in the options': (
        'DMCLONE_OPTIONS="a=1 target_helper=tgtadm"', (),
        'set CINDER_TARGET_HELPER'),
    'no iSCSI': ('CINDER_TARGET_HELPER=nvmet', (),
                 'lioadm or tgtadm. Set CINDER_TARGET_HELPER'),
    'tgtd owns the port': ('', ('tgtd',), 'systemctl disable --now tgt'),
    'two backends': ('CINDER_ENABLED_BACKENDS=dmclone:a,lvm:b,dmclone:c', (),
                     'one backend of dmclone_driver')}
KERNELS = {'dm-clone': ('Ubuntu', 'Fedora', "Debian's backports", 'RHEL'),
           'dm-zero': ('DM_ZERO',),
           'iscsi_target_mod': ('linux-modules-extra-',)}


@ddt.ddt
class PluginCases:
    """Mixin of a test case; each method names the fault that it excludes."""

    #: A checkout of DevStack; without one, the stand-in is used.
    devstack: str | None = None

    def machine(self, localrc: str = '', sample: str = 'local.conf',
                **files: tuple[str, ...]) -> harness.Machine:
        """Return a machine that has not been stacked.

        :param localrc: more lines for the sample of local.conf
        :param files: lines of the machine's files
        """
        text = (harness.SAMPLES / sample).read_text()
        machine = harness.Machine(
            pathlib.Path(self.useFixture(fixtures.TempDir()).path),
            text.replace('enable_plugin', localrc + '\nenable_plugin', 1),
            self.devstack)
        for name, lines in files.items():
            machine.write(name, *lines)
        return machine

    def script(self, machine: harness.Machine, name: str) -> list[str]:
        """Run a script of DevStack; return what it did as root."""
        done = machine.run(name)
        self.assertEqual(0, done.returncode, '\n'.join(
            [done.stdout, done.stderr, *machine.log]))
        return machine.log

    def stacked(self, localrc: str = '', sample: str = 'local.conf',
                **files: tuple[str, ...]) -> harness.Machine:
        """Return a machine that has been stacked."""
        machine = self.machine(localrc, sample, **files)
        self.script(machine, 'stack')
        return machine

    def refused(self, machine: harness.Machine) -> str:
        """Run stack.sh, which has to fail; return its messages."""
        done = machine.run('stack')
        self.assertNotEqual(0, done.returncode, done.stdout)
        return ' '.join(done.stderr.split())

    def in_order(self, log: list[str], *patterns: str) -> None:
        """Verify that the first lines with the patterns are in order."""
        places = []
        for pattern in patterns:
            found = [number for number, line in enumerate(log)
                     if re.search(pattern, line)]
            self.assertTrue(found, '%s in\n%s' % (pattern, '\n'.join(log)))
            places.append(found[0])
        self.assertEqual(sorted(places), places, '\n'.join(log))

    # Configuration

    @ddt.data(*MATRIX)
    @ddt.unpack
    def test_cinder_conf(self, helper, version, role):
        """The section of the backend, and the whole of it."""
        address, lines = ADDRESSES[version]
        sample, more = ROLES[role]
        machine = self.stacked('\n'.join([
            lines, more, 'CINDER_TARGET_HELPER=' + helper,
            'CINDER_VOLUME_CLEAR=none']), sample)
        options = machine.options('etc/cinder/cinder.conf', 'dmclone')
        options.pop('image_volume_cache_enabled', None)
        self.assertEqual({} if role == 'no c-vol' else {
            'volume_backend_name': 'dmclone',
            'volume_driver': 'dmclone_driver.driver.DMCloneVolumeDriver',
            'volume_group': GROUP, 'lvm_type': 'default',
            'volume_clear': 'none', 'target_helper': helper,
            'target_ip_address': address, 'target_port': '3260',
            'target_prefix': IQN}, options)

    @ddt.data(*ADDRESSES)
    def test_address(self, version):
        """D10: sources are exported at the address of the IP version."""
        address, lines = ADDRESSES[version]
        machine = self.stacked(lines, 'local.conf.controller')
        self.assertEqual(address, machine.options(
            'etc/cinder/cinder.conf', 'dmclone')['target_ip_address'])

    @ddt.data('zero', 'none')
    def test_clear(self, value):
        """D10: volumes are cleared as DevStack's setting says."""
        machine = self.stacked('CINDER_VOLUME_CLEAR=' + value)
        self.assertEqual(value, machine.options(
            'etc/cinder/cinder.conf', 'dmclone').get('volume_clear'))

    def test_no_volume_service(self):
        """A node without c-vol is not changed."""
        sample, more = ROLES['no c-vol']
        machine = self.stacked(more, sample)
        self.assertFalse([line for line in machine.log if 'dmclone' in
                          line.replace('dest/dmclone_driver', '')])
        self.assertFalse((machine.folder / RULE).exists())

    def test_options(self):
        machine = self.stacked(
            'DMCLONE_OPTIONS="dmclone_region_size=8 target_port=3261 '
            'lvm_type=thin"\n'
            'DMCLONE_METADATA_VOLUME_GROUP=fast')
        options = machine.options('etc/cinder/cinder.conf', 'dmclone')
        self.assertEqual(
            ('8', '3261', 'thin', 'fast'),
            (options['dmclone_region_size'], options['target_port'],
             options['lvm_type'], options['dmclone_metadata_volume_group']))
        self.assertTrue((machine.folder / 'groups/fast').exists())

    def test_other_backends(self):
        """The backends of local.conf are kept."""
        machine = self.stacked(
            'CINDER_ENABLED_BACKENDS=fake:one,dmclone:two')
        self.assertEqual('two', machine.options(
            'etc/cinder/cinder.conf', 'two')['volume_backend_name'])

    # Refusals

    @ddt.data(*REFUSED)
    def test_refused(self, name):
        """D4: a setting that cannot work ends stack.sh before any change."""
        localrc, processes, message = REFUSED[name]
        machine = self.machine(localrc, processes=processes)
        self.assertIn(message, self.refused(machine))
        self.assertEqual('# stack pre-install', machine.log[-1])

    @ddt.data(*KERNELS)
    def test_kernel(self, module):
        """D11: without a module stack.sh ends, and names the kernels."""
        machine = self.machine(**{'missing-modules': (module,)})
        message = self.refused(machine)
        for word in (module, *KERNELS[module]):
            self.assertIn(word, message)
        self.assertFalse([line for line in machine.log
                          if not re.match('#|sudo (git|modprobe)', line)])

    def test_kernel_without_lio(self):
        self.stacked('CINDER_TARGET_HELPER=tgtadm',
                     **{'missing-modules': ('iscsi_target_mod',)})

    # Targets

    @ddt.data(('lioadm', ['targetcli-fb']), ('tgtadm', ['tgt']))
    @ddt.unpack
    def test_one_target(self, helper, expected):
        """D2: only the target that DevStack uses is installed."""
        machine = self.stacked('CINDER_TARGET_HELPER=' + helper)
        packages = ' '.join(line for line in machine.log
                            if line.startswith('install_package')).split()
        self.assertEqual(expected, [
            name for name in packages if name in ('tgt', 'targetcli-fb',
                                                  'targetcli')])
        self.assertEqual(helper == 'tgtadm',
                         'tgtd' in machine.read('processes'))

    def test_default_target(self):
        machine = self.stacked()
        self.assertEqual('lioadm', machine.options(
            'etc/cinder/cinder.conf', 'dmclone')['target_helper'])

    @ddt.data(('lioadm', 'SHA3-256,SHA256'), ('tgtadm', 'MD5'))
    @ddt.unpack
    def test_chap(self, helper, expected):
        """D3: the target knows the algorithms that initiators may use."""
        machine = self.stacked('CINDER_TARGET_HELPER=' + helper)
        self.assertEqual(expected, machine.options(
            'etc/iscsi/iscsid.conf', 'DEFAULT')[
                'node.session.auth.chap_algs'])

    # Tempest

    def tempest(self, machine: harness.Machine) -> dict[str, str | None]:
        """Return Tempest's variables about the driver."""
        return {name: machine.variable('TEMPEST_' + name) for name in (
            'VOLUME_VENDOR', 'STORAGE_PROTOCOL', 'VOLUME_MANAGE_VOLUME',
            'VOLUME_MANAGE_SNAPSHOT', 'VOLUME_REVERT_TO_SNAPSHOT',
            'EXTEND_ATTACHED_VOLUME')}

    def test_tempest(self):
        """D5, D6: Tempest expects what the driver reports and can do."""
        self.assertEqual({
            'VOLUME_VENDOR': 'dmclone_driver', 'STORAGE_PROTOCOL': 'local',
            'VOLUME_MANAGE_VOLUME': 'True', 'VOLUME_MANAGE_SNAPSHOT': 'True',
            'VOLUME_REVERT_TO_SNAPSHOT': 'True',
            'EXTEND_ATTACHED_VOLUME': 'False'}, self.tempest(self.stacked()))

    def test_tempest_in_local_conf(self):
        found = self.tempest(self.stacked(
            'TEMPEST_VOLUME_MANAGE_SNAPSHOT=False'))
        self.assertEqual('False', found['VOLUME_MANAGE_SNAPSHOT'])

    def test_tempest_with_another_default_type(self):
        """The volumes that Tempest creates are not of this driver."""
        found = self.tempest(self.stacked(
            'CINDER_ENABLED_BACKENDS=fake:one,dmclone:two'))
        self.assertEqual(('Open Source', 'iSCSI', None), (
            found['VOLUME_VENDOR'], found['STORAGE_PROTOCOL'],
            found['EXTEND_ATTACHED_VOLUME']))

    # Volume groups

    def test_persistent_group(self):
        """D7: DevStack's own group on a file, which a boot attaches again."""
        machine = self.stacked('VOLUME_BACKING_FILE_SIZE=7G')
        backing = machine.folder / 'dest/data' / (GROUP + '-backing-file')
        self.assertEqual(7 << 30, backing.stat().st_size)
        self.assertIn(str(backing), machine.read(
            'etc/systemd/system/%s-backing-file.service' % GROUP))
        self.in_order(machine.log, 'systemctl enable --now %s-backing-file'
                      % GROUP, 'vgcreate %s /dev/loop7' % GROUP,
                      '# start_cinder|# stack post-config')
        self.script(machine, 'unstack')
        self.assertFalse(backing.exists())
        self.assertFalse((machine.folder / 'groups' / GROUP).exists())

    def test_size_of_the_plugin(self):
        machine = self.stacked('DMCLONE_VOLUME_GROUP_SIZE=9G')
        self.assertEqual(9 << 30, (machine.folder / 'dest/data' / (
            GROUP + '-backing-file')).stat().st_size)

    def test_group_of_the_operator(self):
        """Nothing is removed from a group that DevStack has not created."""
        machine = self.machine('DMCLONE_VOLUME_GROUP=disks')
        (machine.folder / 'groups/disks').touch()
        for script in ('stack', 'unstack', 'clean'):
            self.assertFalse([
                line for line in self.script(machine, script)
                if re.search('(lv|vg)(remove|create).* disks', line)])

    # Installation

    def test_order(self):
        log = self.stacked().log
        self.in_order(
            log, 'modprobe dm-clone', 'modprobe dm-zero', 'install_package',
            'install .*%s' % re.escape(RULE), 'udevadm control --reload',
            'tee -a .*lvmlocal', '# install_services', 'pip_install --no-deps',
            'vgcreate', '# stack post-config', 'dmclone.filters')

    def test_cinder_is_kept(self):
        """D12: pip gets no reason to replace the checkout of Cinder."""
        machine = self.stacked()
        own = [line for line in machine.log if line.startswith('pip_install')
               and line.endswith('/dmclone_driver')]
        self.assertEqual(1, len(own), own)
        self.assertIn(' --no-deps ', own[0])

    def test_cinder_that_does_not_fit(self):
        """D12: stack.sh ends if the driver cannot be imported."""
        machine = self.machine()
        machine.program('cinder-python', 'exit 1')
        self.assertIn('cannot be imported beside', self.refused(machine))
        self.assertNotIn('# stack post-config', machine.log)

    def test_rootwrap(self):
        """The filter exists although DevStack recreates its folder."""
        self.assertIn('dmclone_context', self.stacked().read(FILTERS))

    def test_threads(self):
        """D14: the environment of the service; others' settings are kept."""
        drop_in = UNIT + '.d/other.conf'
        machine = self.machine('DMCLONE_NATIVE_THREADS=true\n'
                               'SYSTEMD_ENV_VARS["c-vol"]=OTHER=1')
        machine.write(drop_in, '[Service]')
        for script in ('stack', 'unstack', 'clean'):
            self.script(machine, script)
            self.assertEqual('[Service]\n', machine.read(drop_in), script)
            if script == 'stack':
                environment = machine.options(UNIT, 'Service')['Environment']
                for word in ('OS_CINDER_DISABLE_EVENTLET_PATCHING=true',
                             'OTHER=1'):
                    self.assertIn(word, environment.split())

    def test_eventlet(self):
        self.assertNotIn('EVENTLET', self.stacked().read(UNIT))

    @ddt.data((), ('multipathd',))
    def test_multipath(self, processes):
        """D15: the file is there before multipathd is, and it is read."""
        machine = self.stacked(processes=processes)
        self.assertIn('DMCLONE_SOURCE', machine.read(MULTIPATH))
        self.assertEqual(bool(processes),
                         'sudo multipathd reconfigure' in machine.log)

    def test_lvm(self):
        """D16: a filter without the numbers of loop devices."""
        own = 'local {\n\thost_id = 1\n}\n'
        machine = self.machine()
        machine.write(LVMLOCAL, *own.splitlines())
        for _repetition in range(2):
            self.script(machine, 'stack')
            text = machine.read(LVMLOCAL)
            self.assertTrue(text.startswith(own))
            self.assertEqual(1, text.count('global_filter = ['))
            self.assertIn('"r|^/dev/mapper/dmclone-|"', text)
        self.script(machine, 'unstack')
        self.script(machine, 'clean')
        self.assertEqual(own, machine.read(LVMLOCAL))

    def test_lvm_with_a_filter(self):
        """D16: an operator's filter is kept; a message says what to add."""
        own = 'devices {\n\tglobal_filter = [ "a|sda|", "r|.*|" ]\n}\n'
        machine = self.machine()
        machine.write(LVMLOCAL, *own.splitlines())
        done = machine.run('stack')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('lvmlocal.conf to it', done.stdout + done.stderr)
        self.assertEqual(own, machine.read(LVMLOCAL))

    # Removal

    @ddt.data('', 'ENABLED_SERVICES=c-vol')
    def test_sessions(self, localrc):
        """D8: no session to a source is left, nor open-iscsi's record."""
        machine = self.stacked(localrc)
        machine.write('sessions', '3 %sdmclone-1' % IQN, '5 iqn.2026-01:data',
                      '12 %sdmclone-2' % IQN)
        machine.write('records', IQN + 'dmclone-1', 'iqn.2026-01:data',
                      IQN + 'dmclone-2')
        machine.write('devices', *DEVICES)
        log = self.script(machine, 'unstack')
        self.assertEqual('5 iqn.2026-01:data\n', machine.read('sessions'))
        # Requests of a device that wait for its source would keep it.
        self.in_order(log, '-m session -r 3', 'dmsetup remove')
        self.assertNotIn('dmclone', machine.read('records'))

    def test_unstack(self):
        """D9: the service ends first, then guests, then what they used."""
        machine = self.stacked()
        machine.write('devices', *DEVICES)
        log = self.script(machine, 'unstack')
        self.in_order(log, 'systemctl stop devstack@c-vol', '# cleanup_nova',
                      '# cleanup_cinder', 'dmsetup remove',
                      'vgremove -f ' + GROUP)
        self.assertEqual('LVM-1 -\nLVM-3 -\n', machine.read('devices'))

    def test_device_in_use(self):
        """A device in use stays, with those below, and a warning says so."""
        machine = self.stacked()
        machine.write('devices', *DEVICES)
        machine.write('busy', 'DMCLONE-handle-1')
        done = machine.run('unstack')
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('still in use: DMCLONE-', done.stdout + done.stderr)
        self.assertEqual(
            [line for line in DEVICES if not re.match(
                'DMCLONE-(snapshot|export)', line)],
            machine.read('devices').splitlines())

    def test_stack_after_a_crash(self):
        """What an earlier run has left does not keep its volumes open."""
        machine = self.stacked()
        machine.write('devices', *DEVICES)
        machine.write('sessions', '3 %sdmclone-1' % IQN)
        log = self.script(machine, 'stack')
        self.in_order(log, '-m session -r 3', 'dmsetup remove',
                      'lvremove -f ' + GROUP)
        self.assertEqual('LVM-1 -\nLVM-3 -\n', machine.read('devices'))

    def test_clean(self):
        machine = self.stacked(processes=('multipathd',))
        self.script(machine, 'unstack')
        log = self.script(machine, 'clean')
        for name in (RULE, MULTIPATH):
            self.assertFalse((machine.folder / name).exists(), name)
        self.in_order(log, 'udevadm control --reload', 'multipathd reconf')

    # Documentation

    def test_documented_branch(self):
        """D1: each documented line names the branch; DevStack's is master."""
        lines = []
        for path in (*harness.TOP.glob('devstack/**/*'),
                     *harness.TOP.glob('doc/source/**/*.rst'),
                     *harness.TOP.glob('*.rst')):
            if path.is_file():
                lines += re.findall(r'enable_plugin dmclone_driver (.*)',
                                    path.read_text())
        self.assertTrue(len(lines) > 3, lines)
        for line in lines:
            self.assertEqual('main', line.split()[-1], line)

    def test_branch(self):
        """D1: DevStack fetches the plugin, as the sample has it."""
        machine = self.machine()
        machine.publish()
        self.script(machine, 'stack')
        self.assertTrue((machine.folder / 'dest/dmclone_driver/devstack/'
                         'plugin.sh').exists())
