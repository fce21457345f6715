# SPDX-License-Identifier: Apache-2.0
"""Nodes that the DevStack plugin sets up, and clears."""

import configparser
import contextlib

from lab.common import leftovers
from lab.common import user as user_module
from lab import paths
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow

MACHINE = '/var/lib/devstack'
SCRIPTS = paths.CHECKOUT / 'tests/devstack'
GROUP = 'stack-volumes-dmclone'
ISCSID = '/etc/iscsi/iscsid.conf'
#: The plugin's files that the laboratory does not have itself.
FILES = ('/etc/multipath/conf.d/dmclone.conf',
         '/etc/systemd/system/%s-backing-file.service' % GROUP,
         '%s/dest/data/%s-backing-file' % (MACHINE, GROUP))
#: clean.sh removes them with the folder of DevStack's data; the laboratory's
#: tgtd reads this one.
FORGET_TARGETS = 'rm -f /var/lib/cinder/volumes/dmclone-*'
LOCAL_CONF = """[[local|localrc]]
DEST={machine}/dest
HOST_IP={node.ip}
ENABLED_SERVICES=n-cpu,c-vol
CINDER_TARGET_HELPER={helper}
DMCLONE_VOLUME_GROUP_SIZE=2500M
enable_plugin dmclone_driver https://example.org/dmclone_driver main
"""


@slow
class DevStackTest(base.SetupTest):
    """The plugin on two nodes, as root, run by the stand-in for DevStack."""

    def _script(self, node, name):
        node.run('MACHINE={0} MACHINE_SH={1}/real.sh {1}/run.sh {2}'.format(
            MACHINE, SCRIPTS, name), timeout=300)

    def _stack(self, node, helper):
        """Run stack.sh, and start the service with its configuration."""
        node.stop('cinder-volume')
        node.run('cp {0} {0}.saved; mkdir -p {1}/etc/cinder {1}/dest/data; '
                 'ln -sfn {2} {1}/dest/dmclone_driver; '
                 'cat > {1}/local.conf'.format(ISCSID, MACHINE,
                                               paths.CHECKOUT),
                 input=LOCAL_CONF.format(machine=MACHINE, node=node,
                                         helper=helper))
        self._script(node, 'stack')
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(node.run(
            'cat %s/etc/cinder/cinder.conf' % MACHINE))
        node.configure({'dmclone': dict(parser['dmclone'])})
        node.start_service('cinder-volume')

    def _restore(self, node):
        """Give a node its usual configuration, after a failure as well."""
        node.stop('cinder-volume')
        with contextlib.suppress(Exception):
            self._script(node, 'unstack')
            self._script(node, 'clean')
        node.run('test ! -e {0}.saved || mv {0}.saved {0}; rm -rf {1}; {2}; '
                 'cp -r /lab/files/. /; udevadm control --reload'.format(
                     ISCSID, MACHINE, FORGET_TARGETS))
        node.configure({})
        for name in ('tgtd', 'iscsid', 'cinder-volume'):
            node.start_service(name)
        node.wait_ready()

    @contextlib.contextmanager
    def _stacked(self, helper):
        """Run two nodes as the plugin configures them."""
        nodes = list(self.lab.nodes.values())
        try:
            for node in nodes:
                if helper == 'lioadm':
                    node.stop('tgtd')
                    node.start_service('lio')
                self._stack(node, helper)
            for node in nodes:
                node.wait_ready()
            yield nodes
        finally:
            for node in nodes:
                if helper == 'lioadm':
                    node.stop('lio')
                self._restore(node)

    def _reboot(self, node):
        """Reboot a node; systemd's part is to run the unit of the group."""
        node.stop('cinder-volume')
        node.cut_power()
        node.start()
        node.run("sed -n 's/^ExecStart=//p' /etc/systemd/system/"
                 "%s-backing-file.service | bash; vgchange -qq -aay %s; "
                 'vgs %s' % (GROUP, GROUP, GROUP))
        node.start_service('cinder-volume')
        node.wait_ready()

    def _forget_volumes(self):
        """Delete all rows, as a new stack.sh does with the database."""
        for table in ('volume_attachment', 'volumes'):
            self.lab.sql('UPDATE %s SET deleted = 1 WHERE deleted = 0'
                         % table)

    def _from_stack_to_clean(self, helper):
        with self._stacked(helper) as nodes:
            volume_id, home, checksum = self.filled_volume()
            other = self.other(home)
            with self.attached(volume_id, other) as path:
                self.assertEqual(checksum, self.checksum(other, path))
                self.hydrated(volume_id)
            self._reboot(other)
            with self.attached(volume_id, other) as path:
                self.assertEqual(checksum, self.checksum(other, path))
            # A volume in use, whose source is on the other node, is left.
            with self.slow_network(home):
                path = user_module.path(self.user.attach(volume_id, home))
                self.assertIn(' clone ', self.clone_status(home, path))
                for node in nodes:
                    self._script(node, 'unstack')
            self._forget_volumes()
            for node in nodes:
                self._script(node, 'clean')
                node.run(FORGET_TARGETS)
                node.run(' && '.join('test ! -e ' + name for name in FILES))
                self.assertNotIn(GROUP, node.run('vgs -o vg_name'))
            wait.until(lambda: not leftovers.find(self.lab),
                       'all leftovers to be gone', 30,
                       log=lambda: '\n'.join(leftovers.find(self.lab)))

    def test_lio(self):
        self._from_stack_to_clean('lioadm')

    def test_tgt(self):
        self._from_stack_to_clean('tgtadm')
