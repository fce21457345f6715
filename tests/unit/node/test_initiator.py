# SPDX-License-Identifier: Apache-2.0
"""Sessions to sources, with simulated os-brick and iscsiadm."""

import pathlib
import shutil

from cinder import exception as cinder_exception
import ddt
import fixtures
from oslo_concurrency.fixture import lockutils
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.node import initiator
from tests.unit import base

LOCATION = '192.0.2.1:3260,1 iqn.2010-10.org.openstack:dmclone-x 1'
AUTH = 'CHAP user secret'
PROPERTIES = {'target_discovered': False, 'target_portal': '192.0.2.1:3260',
              'target_iqn': 'iqn.2010-10.org.openstack:dmclone-x',
              'target_lun': 1, 'auth_method': 'CHAP',
              'auth_username': 'user', 'auth_password': 'secret'}


SCAN = ('tee', '-a', '/sys/class/scsi_host/host3/scan')


class Brick:
    """A simulated connector of os-brick."""

    def __init__(self):
        self.sessions = []
        self.execute = None

    def connect_volume(self, properties):
        self.execute('iscsiadm', '-m', 'session', run_as_root=True)
        self.execute(*SCAN, process_input='0 0 1', run_as_root=True)
        self.sessions.append(properties)
        return {'type': 'block', 'path': '/dev/sdx'}

    def disconnect_volume(self, properties, info, force=False,
                          ignore_errors=False):
        if not (force and ignore_errors):
            raise AssertionError('fails when the source is gone')
        if properties in self.sessions:
            self.sessions.remove(properties)


class RecordTestCase(base.PlainTestCase):
    """What os-brick itself sets in open-iscsi's record of a source."""

    RECORD = ('iscsiadm', '-m', 'node', '-T', PROPERTIES['target_iqn'], '-p',
              PROPERTIES['target_portal'])

    def setUp(self):
        super().setUp()
        for name in ('set_recovery_timeout', 'wait_for_commands',
                     'deepen_queue'):
            self.patch('dmclone_driver.privsep.block.' + name)
        for name, result in (('get_hctl', ('3', '-', '-', 1)),
                             ('device_name_by_hctl', 'sdx'),
                             ('get_sysfs_wwn', 'x')):
            self.patch('os_brick.initiator.linuxscsi.LinuxSCSI.' + name,
                       return_value=result)
        self.patch('socket.create_connection')
        self.patch('dmclone_driver.privsep.command.settle')
        self.useFixture(lockutils.ExternalLockFixture())
        self.executed = []
        self.patch('os_brick.privileged.rootwrap.execute',
                   side_effect=self.execute)

    def execute(self, *words, **_options):
        logged_in = (*self.RECORD, '--login') in self.executed
        self.executed.append(words)
        if words == ('iscsiadm', '-m', 'session') and logged_in:
            return 'tcp: [5] %s,1 %s (non-flash)\n' % (
                PROPERTIES['target_portal'], PROPERTIES['target_iqn']), ''
        return '', 'No records found' if words == self.RECORD else ''

    def test_connect(self):
        self.assertEqual('/dev/sdx', initiator.Initiator(7, 30).connect(
            LOCATION, AUTH))
        found = [words[len(self.RECORD):] for words in self.executed
                 if words[:len(self.RECORD)] == self.RECORD]
        update = ('--op', 'update', '-n')
        # A login that fails ends soon, and so does a scan whose target is
        # gone: os-brick holds a lock meanwhile.
        limit = (*update, 'node.session.scan', '-v', 'manual',
                 '-n', 'node.session.initial_login_retry_max', '-v', '1',
                 '-n', 'node.session.timeo.replacement_timeout', '-v', '5')
        self.assertLess(found.index(limit), found.index(('--login',)))
        # A boot would wait for a source that is down.
        self.assertEqual([(*update, 'node.startup', '-v', 'manual')], [
            words for words in found if 'node.startup' in words])


@ddt.ddt
class InitiatorTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.brick = Brick()
        factory = self.patch('os_brick.initiator.connector.'
                             'InitiatorConnector.factory')
        factory.side_effect = self._factory
        self.limit = self.patch(
            'dmclone_driver.privsep.block.set_recovery_timeout')
        self.patience = self.patch(
            'dmclone_driver.privsep.block.wait_for_commands')
        self.deepen = self.patch('dmclone_driver.privsep.block.deepen_queue')
        self.iscsiadm = self.patch(
            'dmclone_driver.privsep.command.iscsiadm', return_value='')
        self.empty = self.patch(
            'dmclone_driver.privsep.iscsi_records.delete_empty',
            return_value=[])
        self.sessions = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch(
            'dmclone_driver.node.initiator.SESSIONS',
            str(self.sessions / '*/targetname')))
        self.portal = self.patch('socket.create_connection')
        self.executed = []
        self.patch('os_brick.privileged.rootwrap.execute',
                   side_effect=lambda *words, **_options:
                   self.executed.append(words) or ('', ''))
        self.settle = self.patch('dmclone_driver.privsep.command.settle')
        self.initiator = initiator.Initiator(7, 30)

    def _factory(self, protocol, helper, execute, device_scan_attempts):
        self.assertEqual(('ISCSI', 7), (protocol, device_scan_attempts))
        self.brick.execute = execute
        return self.brick

    def test_properties(self):
        self.assertEqual(PROPERTIES, initiator.properties(LOCATION, AUTH))

    def test_address_of_version_6(self):
        found = initiator.properties(LOCATION.replace('192.0.2.1',
                                                      '[2001:db8::1]'), AUTH)
        self.assertEqual('[2001:db8::1]:3260', found['target_portal'])

    def test_connect_and_disconnect(self):
        self.assertEqual('/dev/sdx', self.initiator.connect(LOCATION, AUTH))
        self.assertEqual([PROPERTIES], self.brick.sessions)
        for _ in range(2):
            self.initiator.disconnect(LOCATION, AUTH)
            self.assertEqual([], self.brick.sessions)

    def test_link_of_a_new_disk_is_waited_for(self):
        """Otherwise os-brick would look for it again after a second."""
        seen = []
        self.settle.side_effect = lambda seconds: seen.append(
            (list(self.executed), seconds))
        self.initiator.connect(LOCATION, AUTH)
        self.assertEqual([([('iscsiadm', '-m', 'session'), SCAN],
                           initiator.NAMED_WITHIN)], seen)

    @ddt.data(processutils.ProcessExecutionError(), FileNotFoundError())
    def test_udev_takes_longer(self, error):
        self.settle.side_effect = error
        self.assertEqual('/dev/sdx', self.initiator.connect(LOCATION, AUTH))

    @ddt.data(('192.0.2.1:3260', ('192.0.2.1', 3260)),
              ('[2001:db8::1]:3260', ('2001:db8::1', 3260)))
    @ddt.unpack
    def test_portal_does_not_answer(self, portal, address):
        """It fails at once: a login would block others for minutes."""
        self.portal.side_effect = TimeoutError('the-reason')
        error = self.assertRaises(
            exception.SourceUnreachable, self.initiator.connect,
            LOCATION.replace('192.0.2.1:3260', portal), AUTH)
        for part in (portal, 'the-reason'):
            self.assertIn(part, error.msg)
        self.assertEqual([], self.brick.sessions)
        self.portal.assert_called_once_with(address, initiator.PORTAL_TIMEOUT)

    def test_session_is_cut_before_os_brick_could_wait_for_its_source(self):
        self.initiator.connect(LOCATION, AUTH)
        seen = []

        def iscsiadm(words):
            if '--logout' in words:
                seen.extend(self.brick.sessions)
            return ''
        self.iscsiadm.side_effect = iscsiadm
        self.initiator.disconnect(LOCATION, AUTH)
        self.assertEqual([PROPERTIES], seen)

    def test_empty_records(self):
        """They are deleted before iscsiadm could stumble over them."""
        seen = []
        self.empty.side_effect = lambda iqn: seen.append(
            (iqn, len(self.brick.sessions))) or ['/etc/iscsi/nodes/x']
        self.initiator.connect(LOCATION, AUTH)
        self.initiator.disconnect(LOCATION, AUTH)
        self.assertEqual([(PROPERTIES['target_iqn'], 0)] * 2, seen)
        self.assertIn('/etc/iscsi/nodes/x', self.log.output)

    def test_empty_records_that_cannot_be_deleted(self):
        """Without one the login succeeds."""
        self.empty.side_effect = OSError(30, 'the-reason')
        self.assertEqual('/dev/sdx', self.initiator.connect(LOCATION, AUTH))
        self.initiator.disconnect(LOCATION, AUTH)
        self.assertIn('the-reason', self.log.output)

    def has_sessions(self, *targets):
        for number, target in enumerate(targets):
            session = self.sessions / ('session%d' % number)
            session.mkdir()
            (session / 'targetname').write_text(target + '\n')

    def test_targets(self):
        self.assertEqual([], self.initiator.targets())
        names = ['iqn.2001-04.com.example:y', PROPERTIES['target_iqn']]
        self.has_sessions(*names)
        ends_meanwhile = self.sessions / 'session7'
        ends_meanwhile.mkdir()
        (ends_meanwhile / 'targetname').symlink_to('nowhere')
        self.assertEqual(names, sorted(self.initiator.targets()))

    def test_session_that_does_not_end(self):
        """disconnect fails, since the session still exists."""
        self.initiator.connect(LOCATION, AUTH)
        self.has_sessions(PROPERTIES['target_iqn'] + '2')
        self.initiator.disconnect(LOCATION, AUTH)
        shutil.rmtree(self.sessions / 'session0')
        self.has_sessions(PROPERTIES['target_iqn'])
        error = self.assertRaises(cinder_exception.VolumeDriverException,
                                  self.initiator.disconnect, LOCATION, AUTH)
        self.assertIn(PROPERTIES['target_iqn'], error.msg)

    def test_limit_of_each_session(self):
        for _ in range(2):
            self.initiator.connect(LOCATION, AUTH)
            self.limit.assert_called_once_with('/dev/sdx', 30)
            self.limit.reset_mock()
            self.patience.assert_called_once_with('/dev/sdx')
            self.patience.reset_mock()

    @ddt.data('limit', 'patience')
    def test_limit_cannot_be_set(self, which):
        getattr(self, which).side_effect = OSError(2, 'the-reason')
        error = self.assertRaises(cinder_exception.VolumeDriverException,
                                  self.initiator.connect, LOCATION, AUTH)
        for part in ('iqn.2010-10.org.openstack:dmclone-x',
                     'dmclone_source_timeout = 30', 'the-reason'):
            self.assertIn(part, error.msg)

    def test_queue_of_each_disk(self):
        self.initiator.connect(LOCATION, AUTH)
        self.deepen.assert_called_once_with('/dev/sdx')

    def test_queue_that_cannot_be_made_deeper(self):
        """The volume can be used with the default queue."""
        self.deepen.side_effect = OSError(22, 'the-reason')
        self.assertEqual('/dev/sdx', self.initiator.connect(LOCATION, AUTH))

    @ddt.data(('LOGGED_IN\n', False), ('FAILED\n', True), ('FREE\n', True),
              (None, False))
    @ddt.unpack
    def test_is_lost(self, state, lost):
        session = self.sessions / 'session4'
        self.patch('dmclone_driver.privsep.block.session_of',
                   side_effect={'sdx': str(session)}.get)
        if state:
            session.mkdir()
            (session / 'state').write_text(state)
        self.assertIs(lost, self.initiator.is_lost('sdx'))

    def test_disk_that_is_not_imported_is_not_lost(self):
        self.patch('dmclone_driver.privsep.block.session_of',
                   side_effect=OSError)
        self.assertFalse(self.initiator.is_lost('sda'))

    @ddt.data((None, None), (LOCATION, None), (None, AUTH), ('', ''))
    @ddt.unpack
    def test_nothing_to_disconnect(self, location, auth):
        self.initiator.connect(LOCATION, AUTH)
        self.initiator.disconnect(location, auth)
        self.assertEqual([PROPERTIES], self.brick.sessions)

    def test_cut(self):
        self.initiator.cut(LOCATION)
        words = self.iscsiadm.call_args.args[0]
        self.assertIn(PROPERTIES['target_iqn'], words)
        self.assertIn('--logout', words)

    def test_nowhere_to_cut(self):
        """A source without an export has no session."""
        self.initiator.cut(None)
        self.iscsiadm.assert_not_called()

    def test_nothing_to_cut_or_nothing_to_cut_it_with(self):
        for error in (FileNotFoundError(2, 'iscsiadm'),
                      processutils.ProcessExecutionError(
                          exit_code=initiator.NO_SESSION),
                      processutils.ProcessExecutionError(exit_code=8)):
            self.iscsiadm.side_effect = error
            self.initiator.cut(LOCATION)

    def test_in_use(self):
        link = '/dev/disk/by-path/ip-x-iscsi-iqn-lun-1'
        self.patch('glob.glob', side_effect=lambda text: (
            [link] if text == '/dev/disk/by-path/*-iscsi-iqn-lun-*' else []))
        self.patch('os.path.realpath', return_value='/dev/sdb')
        holders = self.patch('os.listdir', return_value=['dm-3'])
        self.assertTrue(self.initiator.in_use('iqn'))
        holders.assert_called_once_with('/sys/class/block/sdb/holders')
        holders.return_value = []
        self.assertFalse(self.initiator.in_use('iqn'))
        self.assertFalse(self.initiator.in_use('iqn2'))
