# SPDX-License-Identifier: Apache-2.0
"""A node for the checks: its files, in the formats of real ones."""

import pathlib
import shutil

from oslo_concurrency import processutils

from dmclone_driver.checks import host

ETC = pathlib.Path(__file__).parents[3] / 'etc'

#: Of /proc/net/tcp of Linux 6.18, apart from the addresses and the inode.
TCP = ('  sl  local_address rem_address   st tx_queue rx_queue tr tm->when '
       'retrnsmt   uid  timeout inode\n'
       '   0: 0B0200C0:0CBC 00000000:0000 0A 00000000:00000000 00:00000000 '
       '00000000     0        0 4711 1 000000006bb93b02 100 0 0 10 0\n'
       '   1: 0B0200C0:0CBC 0C0200C0:AE74 01 00000000:00000000 02:0000005A '
       '00000000     0        0 4712 2 00000000e44a7e9e 20 4 30 10 -1\n')
UNIX = ('Num       RefCount Protocol Flags    Type St Inode Path\n'
        '00000000a4ec9d35: 00000002 00000000 00010000 0001 01 15209 '
        '@ISCSIADM_ABSTRACT_NAMESPACE\n')
#: The beginning of what lvmconfig of LVM 2.03.16 prints with
#: etc/lvm/lvmlocal.conf.
LVM = ('devices {\n'
       '\tdir="/dev"\n'
       '\tignore_suspended_devices=1\n'
       '\tscan_lvs=0\n'
       '\tglobal_filter=["r|^/dev/mapper/dmclone-|",'
       '"r|^/dev/disk/by-path/.*-iscsi-.*:dmclone-|"]\n'
       '\tscan=["/dev"]\n'
       '\thints="all"\n'
       '\tuse_devicesfile=0\n'
       '\tdevicesfile="system.devices"\n'
       '\tfilter=["a|.*|"]\n'
       '}\n')
#: The same without that file.
LVM_DEFAULT = LVM.replace(
    '"r|^/dev/mapper/dmclone-|",'
    '"r|^/dev/disk/by-path/.*-iscsi-.*:dmclone-|"', '"a|.*|"')
ISCSID = ('# CHAP digests\n'
          '# The default is MD5.\n'
          '#node.session.auth.chap_algs = SHA3-256,SHA256,SHA1,MD5\n'
          'node.startup = manual\n'
          'node.session.timeo.replacement_timeout = 120\n')
DENIAL = ('6,1204,83768847824,-;audit: type=1400 audit(1438180376.667:12391): '
          'apparmor="DENIED" operation="open" profile="libvirt-1c01664c-8f99-'
          '4942-85c9-2c0c90b2e92b" name="/dev/dm-4" pid=1104 '
          'comm="qemu-system-x86" requested_mask="r" denied_mask="r" '
          'fsuid=64055 ouid=0\n')
#: A logical volume, as device-mapper names it.
VOLUME = ('cinder--volumes-volume--'
          '1c01664c--8f99--4942--85c9--2c0c90b2e92b')
#: What the rule leaves of a device in udev's database.
FLAGS = ('E:DM_UDEV_DISABLE_DISK_RULES_FLAG=1\n'
         'E:DM_UDEV_DISABLE_OTHER_RULES_FLAG=1\n')


class Node(host.Host):
    """A healthy node with a root in a folder; faults are planted in it."""

    def __init__(self, folder, name='node1', address='192.0.2.11'):
        super().__init__(folder)
        self.own_address = address
        self.loaded = {'linear', 'clone', 'zero', 'snapshot',
                       'snapshot-origin'}
        self.modules = {'iscsi_tcp', 'loop', 'dm_delay', 'dm_thin_pool'}
        self.system = '6.1.0-50-amd64'
        self.user = 0
        self.offset = 0
        self.error = None
        self.dump = 'thin_dump 1.0.6'
        #: {name: addresses}
        self.known = {'node1': {'192.0.2.11'}, 'node2': {'192.0.2.12'}}
        #: {LVM_SYSTEM_DIR: what lvmconfig prints}
        self.lvm = {None: LVM}
        #: The addresses and ports that answer.
        self.reachable = {('192.0.2.12', 3260)}
        for path, text in (
                ('/etc/iscsi/initiatorname.iscsi',
                 'InitiatorName=iqn.1993-08.org.debian:01:1\n'),
                ('/etc/iscsi/iscsid.conf', ISCSID),
                ('/etc/nova/nova.conf', '[DEFAULT]\nhost = %s\n' % name),
                ('/proc/net/unix', UNIX), ('/proc/net/tcp', TCP),
                ('/proc/sys/crypto/fips_enabled', '0\n'),
                ('/dev/kmsg', '6,0,0,-;Linux version 6.1.0\n')):
            self.write(path, text)
        self.process(1, 'systemd')
        self.process(200, 'systemd-udevd')
        self.process(300, 'tgtd', 4711)
        self.device(7, 'dmclone-1', 'DMCLONE-handle-1')
        self.device(8, 'vg-root', 'LVM-abc', flag=0)
        self.device(9, VOLUME, 'LVM-def')
        self.copy('udev/rules.d/11-dm-dmclone.rules',
                  '/etc/udev/rules.d/11-dm-dmclone.rules')

    # Faults

    def write(self, path, text):
        self.path(path).parent.mkdir(parents=True, exist_ok=True)
        self.path(path).write_text(text)

    def copy(self, source, path):
        """Install a file of the checkout's etc."""
        self.write(path, (ETC / source).read_text())

    def remove(self, path):
        self.path(path).unlink()

    def process(self, number, name, *inodes):
        """Add a process with sockets."""
        self.write('/proc/%d/comm' % number, name + '\n')
        folder = self.path('/proc/%d/fd' % number)
        folder.mkdir()
        (folder / '0').symlink_to('/dev/null')
        for descriptor, inode in enumerate(inodes, 3):
            (folder / str(descriptor)).symlink_to('socket:[%d]' % inode)

    def end(self, number):
        """End a process."""
        shutil.rmtree(self.path('/proc/%d' % number))

    def device(self, minor, name, uuid, flag=1):
        """Add a device of the device-mapper, which udev knows."""
        folder = '/sys/block/dm-%d' % minor
        self.write(folder + '/dev', '253:%d\n' % minor)
        self.write(folder + '/dm/name', name + '\n')
        self.write(folder + '/dm/uuid', uuid + '\n')
        self.write('/run/udev/data/b253:%d' % minor,
                   'S:mapper/%s\nE:DM_NAME=%s\n%s' % (
                       name, name, FLAGS if flag else ''))

    # Instead of this machine

    def release(self):
        return self.system

    def privileged_user(self):
        if self.error:
            raise self.error
        return self.user

    def targets(self):
        return self.loaded

    def find_module(self, module):
        if module not in self.modules:
            raise processutils.ProcessExecutionError(
                stderr='modprobe: FATAL: Module %s not found in directory '
                '/lib/modules/6.1.0' % module)

    def thin_dump(self):
        if not self.dump:
            raise processutils.ProcessExecutionError(
                stderr='thin_dump: No such file or directory')
        return self.dump

    def lvm_settings(self, folder):
        return self.lvm[folder]

    def name(self):
        return 'name-of-the-system'

    def addresses(self, name):
        return self.known.get(name, set())

    def has_address(self, address):
        return address == self.own_address

    def connect(self, address, port):
        if (address, port) not in self.reachable:
            raise ConnectionRefusedError(111, 'Connection refused')

    def get(self, url):
        self.connect(*url.removeprefix('http://').partition('/')[0].split(':'))

    def now(self):
        return super().now() + self.offset
