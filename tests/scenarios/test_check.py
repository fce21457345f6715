# SPDX-License-Identifier: Apache-2.0
"""dmclone-check on healthy nodes, and on nodes with planted faults."""

import contextlib
import json

from tests.scenarios.lib import base
from tests.scenarios.lib.marks import named
from tests.scenarios.lib.marks import slow

#: Nobody has this address.
NOWHERE = '10.77.0.99'
LVM = 'cinder.volume.drivers.lvm.LVMVolumeDriver'
RULE = '/etc/udev/rules.d/11-dm-dmclone.rules'
FILTER = '/etc/lvm/lvmlocal.conf'
ISCSID = '/etc/iscsi/iscsid.conf'

#: {the line that turns red: options that differ from the lab's}. The service
#: is not restarted, and keeps the old ones.
OPTIONS = (
    ('volume_name_template', {'DEFAULT': {'volume_name_template': '%s'}}),
    ('cluster', {'DEFAULT': {'cluster': 'all'}}),
    ('time-outs', {'DEFAULT': {'rpc_response_timeout': '30'}}),
    ('locks', {'coordination': {
        'backend_url': 'etcd3+http://%s:2379' % NOWHERE}}),
    ('root', {'dmclone_privileged': {'helper_command': '/bin/false'}}),
    ('other backends', {
        'DEFAULT': {'enabled_backends': 'dmclone,second'},
        'second': {'volume_driver': LVM, 'volume_group': 'cinder-volumes'}}),
    ('volume group', {'dmclone': {'volume_group': 'nowhere'}}),
    ('metadata', {'dmclone': {'dmclone_metadata_volume_group': 'nowhere'}}),
    ('target address', {'dmclone': {'target_ip_address': NOWHERE}}))

_ACCEPT_ALL = ('cp {0} /run/filter && sed -i '
               '\'s/^\\(\\tglobal_filter = \\).*/\\1[ "a|.*|" ]/\' {0}')

# A process with the name of that daemon, which nodes do not have.
_MULTIPATHD = (
    'cp /bin/sleep /run/multipathd && '
    '(setsid /run/multipathd 1000 < /dev/null > /dev/null 2>&1 & '
    'echo $! > /run/multipathd.pid)')

#: (the line, a command that plants the fault, one that removes it).
COMMANDS = (
    ('udev rule', 'mv %s /run/rule' % RULE, 'mv /run/rule %s' % RULE),
    ('LVM filter', _ACCEPT_ALL.format(FILTER), 'cp /run/filter %s' % FILTER),
    ('CHAP algorithms',
     'cp {0} /run/iscsid && echo node.session.auth.chap_algs = SHA256 '
     '>> {0}'.format(ISCSID), 'cp /run/iscsid %s' % ISCSID),
    ('host names', 'sed -i "/ $(hostname)$/d" /etc/hosts',
     'cp /lab/hosts /etc/hosts'),
    ("Nova's host",
     'rm /etc/nova/nova.conf && printf "[DEFAULT]\\nhost = other\\n'
     'my_ip = %s\\n" > /etc/nova/nova.conf' % NOWHERE,
     'ln -sfn /lab/nova.conf /etc/nova/nova.conf'),
    ('multipath', _MULTIPATHD,
     'kill $(cat /run/multipathd.pid) && rm /run/multipathd'))

_TAKE_PORT = (
    '(setsid python3 -c "import socket, time; '
    'one = socket.create_server((\'%s\', 3260)); time.sleep(1000)" '
    '< /dev/null > /dev/null 2>&1 & echo $! > /run/port.pid); sleep 3')

# What the command could change on a node.
_STATE = ('dmsetup table; dmsetup info -c --noheadings -o name,open,suspended;'
          ' lvs --noheadings -o lv_name,lv_tags,lv_attr; '
          'lsmod | cut -d " " -f 1 | sort; tgtadm --op show --mode target')


class CheckTest(base.E2ETest):
    """The lines and the exit code of the command."""

    def setUp(self):
        super().setUp()
        self.node = self.lab.node('node1')
        self.peer = self.other(self.node)

    def check(self, node=None):
        """Return (exit code, the results)."""
        code, lines, err = self.command(node or self.node, 'check', '--json')
        self.assertTrue(lines, err)
        return code, json.loads('\n'.join(lines))['results']

    def assert_right(self, node=None):
        """Check that each line is right or does not apply."""
        code, results = self.check(node)
        self.assertEqual([], [each for each in results if each['outcome']
                              not in ('ok', 'not applicable')])
        self.assertEqual(0, code)

    def assert_red(self, check):
        """Check that exactly one line is red, and says what to do."""
        code, results = self.check()
        red = [each for each in results if each['outcome'] == 'failed']
        self.assertEqual([check], [each['check'] for each in red], red)
        self.assertTrue(red[0]['remedy'] or red[0]['start_refused'], red)
        self.assertEqual(1, code)

    @named
    def test_healthy_nodes(self):
        """The command changes nothing; the service may run or not."""
        for node in self.lab.nodes.values():
            before = node.run(_STATE)
            self.assert_right(node)
            self.assertEqual(before, node.run(_STATE))
        self.node.stop('cinder-volume')
        try:
            self.assert_right()
        finally:
            self.node.start_service('cinder-volume')
            self.node.wait_ready()

    def test_lines(self):
        code, lines, err = self.program(self.node, 'check')
        self.assertEqual(0, code, lines)
        for line in lines:
            self.assertIn(line[:2], ('\N{CHECK MARK} ', 'ok', '- '))
        self.assertTrue(any('[dmclone] volume group: cinder-volumes' in line
                            for line in lines), lines)

    @slow
    def test_planted_faults(self):
        """Each fault turns its own line red, and it is right afterwards."""
        self.assert_right()
        for check, plant in self._faults():
            with self.subTest(check):
                with plant:
                    self.assert_red(check)
                self.assert_right()

    def _faults(self):
        """Return (the line that turns red, context manager) of each fault."""
        return ([(check, self._options(changes))
                 for check, changes in OPTIONS] +
                [(check, self._commands(plant, remove))
                 for check, plant, remove in COMMANDS] +
                [('iscsid', self._stopped(self.node, 'iscsid')),
                 ('target port', self._port_taken()),
                 ('network', self._stopped(self.peer, 'tgtd')),
                 ('peer', self._stopped(self.peer, 'cinder-volume'))])

    @contextlib.contextmanager
    def _options(self, changes):
        """Change options for programs that start from now on."""
        self.node.configure(changes)
        try:
            yield
        finally:
            self.node.configure({})

    @contextlib.contextmanager
    def _commands(self, plant, remove):
        self.node.run(plant)
        try:
            yield
        finally:
            self.node.run(remove)

    @staticmethod
    @contextlib.contextmanager
    def _stopped(node, name):
        node.stop(name)
        try:
            yield
        finally:
            node.start_service(name)
            node.wait_ready()

    @contextlib.contextmanager
    def _port_taken(self):
        """Have another program listen where tgtd should."""
        with self._stopped(self.node, 'tgtd'), self._commands(
                _TAKE_PORT % self.node.ip, 'kill $(cat /run/port.pid)'):
            yield
