# SPDX-License-Identifier: Apache-2.0
"""The verbs that only read: what they print, and their exit codes."""

import csv
import io
import json
import types
from unittest import mock

from cinder import context as cinder_context
import ddt

from dmclone_driver.cmd import display
from dmclone_driver.cmd import dmclone
from dmclone_driver.cmd import reading
from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.move import remotes
from dmclone_driver.move import report
from dmclone_driver.move.report import Wait
from dmclone_driver.move import rpcapi
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit import test_driver


class Terminal(io.StringIO):
    """A terminal, whose width is in the environment."""

    def isatty(self):
        return True


class InTurn:
    """No thread: the simulated nodes have one at a time."""

    def __init__(self, target, daemon):
        self.start = target


class VerbTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.patch('dmclone_driver.move.gathering.threading',
                   new=types.SimpleNamespace(Thread=InTurn))
        # With a context that was not used before, as in a new process.
        self.patch('dmclone_driver.cmd.reading.Reading.connect',
                   new=lambda verb: (cinder_context.get_admin_context(),
                                     rpcapi.PeerClient()))
        self.patch('dmclone_driver.cmd.reading._configured',
                   new=lambda: [cloud.BACKEND])
        self.out = io.StringIO()

    def call(self, line, out=None):
        """Return (exit code, what is printed) of a call on a node."""
        self.out = out or io.StringIO()
        application = dmclone.Application(stdout=self.out,
                                          stderr=io.StringIO())
        with self.cloud.on(self.a):
            code = application.run(line.split())
        self.error = application.stderr.getvalue()
        return code, self.out.getvalue()

    def document(self, line, expected=0):
        code, text = self.call(line)
        self.assertEqual(expected, code, text)
        return json.loads(text)

    def hydrate(self):
        """Leave a clone that is half hydrated, at a known rate."""
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        for _ in range(2):
            self.cloud.pass_time(10)
            clone = self.b.kernel.devices[
                Names(self.row().name_id).of('clone')].own
            clone.bitmap['hydrated'] += 4096
            self.b.look()

    def lose_session(self):
        self.a.target.forget()
        self.a.server = None
        self.b.look_at_sessions()


@ddt.ddt
class StatusTestCase(VerbTestCase):

    @ddt.data('-f json', '--format json')
    def test_document(self, option):
        self.hydrate()
        first, second = self.document('status ' + option)
        self.assertEqual(
            (self.a.host, 'ok', 0, [], 1, 99 * cloud.GIB, ''),
            (first['Node'], first['State'], first['Volumes'],
             first['Arriving'], len(first['Sources']), first['Free'],
             first['Reason']))
        move, = second['Arriving']
        self.assertEqual(
            (self.volume.id, 'hydrating', 8192, 16384, 4096 * 65536 / 10),
            tuple(move[name] for name in (
                'volume', 'state', 'hydrated', 'total', 'rate')))

    def test_pipe(self):
        """There is no bar, and a line is as long as it is."""
        self.hydrate()
        code, text = self.call('status')
        self.assertEqual(0, code)
        self.assertIn('| %s | ok ' % self.a.host, text)
        self.assertIn('\n%s  node1 > node2  hydrating\n  50%%, 512.0 MiB of '
                      '1.0 GiB, 25.6 MiB/s, 20 s left\n' % self.volume.id,
                      text)
        self.assertNotIn('#', text)

    @ddt.data(120, 80, 60, 40)
    def test_terminal(self, width):
        self.hydrate()
        self.lose_session()
        with mock.patch.dict('os.environ', COLUMNS=str(width)):
            code, text = self.call('status', Terminal())
        self.assertEqual(1, code)
        table, _, below = text.partition('\n\n')
        self.assertEqual(width >= 80, '#' in below)
        for line in text.splitlines():
            self.assertLessEqual(len(line), max(width, 48))
        self.assertEqual(width > 92, 'Left behind' in table)
        for name in 'Node', 'State', 'Arriving', 'Free':
            self.assertIn(' %s ' % name, table)

    def test_csv(self):
        _code, text = self.call('status -f csv -c Node -c Volumes')
        self.assertEqual(
            [['Node', 'Volumes'], [self.a.host, '1'], [self.b.host, '0']],
            list(csv.reader(io.StringIO(text))))

    def test_chosen_columns(self):
        _code, text = self.call('status -c Version')
        self.assertIn(self.a.driver.VERSION, text)
        self.assertNotIn('Volumes', text)

    def test_moves_of_a_silent_node(self):
        """The database says what it can."""
        self.hydrate()
        self.b.server = None
        code, text = self.call('status')
        self.assertEqual(1, code)
        # Less than 5 seconds if this machine is busy.
        self.assertRegex(text, r'%s: no answer within [345]\.\d seconds' %
                         self.b.host)
        self.assertIn('switched\n  node2 has not reported it', text)
        self.assertIn('| silent |       1 |', text)
        self.b.die()
        self.assertEqual(['ok', 'down'], [
            each['State'] for each in self.document('status -f json', 1)])

    def test_prepared_moves(self):
        """Each is shown once, whoever answers."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        placeholder = lookups.prepared_move(self.row())
        for silent in (None, self.b, self.a):
            for node in (self.a, self.b):
                node.kept = node.server
            if silent:
                silent.server = None
            _first, second = self.document('status -f json', bool(silent))
            move, = second['Arriving']
            self.assertEqual(
                (placeholder, self.a.host, self.b.host, 'prepared', 'gate'),
                tuple(move[name] for name in (
                    'placeholder', 'source', 'destination', 'state',
                    'waits')))
            for node in (self.a, self.b):
                node.server = node.kept

    def test_old_driver(self):
        self.patch('dmclone_driver.move.rpcapi.PeerClient.report',
                   side_effect=exception.PeerTooOld(host='x', call='report'))
        code, text = self.call('status')
        self.assertEqual(1, code)
        self.assertIn('too old', text)

    def test_failing_report(self):
        self.patch('dmclone_driver.move.jobs.Jobs.left',
                   side_effect=ValueError('strange'))
        code, text = self.call('status')
        self.assertEqual(1, code)
        self.assertIn('strange', text)

    def test_node_without_database(self):
        self.patch('dmclone_driver.move.report_rows.of_backend',
                   side_effect=ValueError)
        code, text = self.call('status')
        self.assertEqual(1, code)
        self.assertIn('cannot read the database', text)

    def test_no_backend(self):
        self.patch('dmclone_driver.cmd.reading._configured', new=list)
        code, _text = self.call('status')
        self.assertEqual((1, True), (code, '--backend' in self.error))
        self.assertEqual([], self.document('status --backend no -f json'))

    def test_wrong_limit(self):
        with mock.patch('sys.stderr', io.StringIO()):
            for limit in ('0', '-1', 'x'):
                self.assertEqual(2, self.assertRaises(
                    SystemExit, self.call, 'status --limit=' + limit).code)


class WatchTestCase(VerbTestCase):

    def test_until_complete(self):
        self.hydrate()

        def pause(seconds):
            self.assertEqual(3, seconds)
            self.cloud.watch()

        with mock.patch('dmclone_driver.cmd.status.time', sleep=pause,
                        strftime=lambda form: '12:00\n'):
            code, text = self.call('watch --interval 3 --until-complete')
        self.assertEqual(0, code)
        looks = text.split('12:00\n')
        self.assertGreater(len(looks), 2)
        self.assertIn('hydrating', looks[1])
        self.assertNotIn(self.volume.id, looks[-1])

    def test_silent_node_is_waited_for(self):
        self.a.server, kept = None, self.a.server
        pauses = []

        def pause(seconds):
            pauses.append(seconds)
            self.a.server = kept

        with mock.patch('dmclone_driver.cmd.status.time', sleep=pause):
            code, _text = self.call('watch --until-complete -f json')
        self.assertEqual((0, [5]), (code, pauses))

    def test_end_by_hand(self):
        pause = mock.Mock(side_effect=[None, KeyboardInterrupt])
        with mock.patch('dmclone_driver.cmd.status.time', sleep=pause):
            code, text = self.call('watch', Terminal())
        self.assertEqual((0, 2), (code, text.count('\033[H\033[2J')))


class ShowTestCase(VerbTestCase):

    def show(self, expected=0):
        code, text = self.call('show ' + self.volume.id)
        self.assertEqual(expected, code, text)
        return text.splitlines()

    def test_at_rest(self):
        self.assertEqual([
            'Volume %s of 1.0 GiB is available.' % self.volume.id,
            'Its home is %s, in logical volume volume-%s.' % (
                self.a.host, self.volume.id),
            'No move is under way, and its data is complete at its home.'],
            self.show())

    def test_hydrating(self):
        self.hydrate()
        lines = self.show()
        self.assertEqual([
            'Its move from %s to %s is hydrating.' % (self.a.host,
                                                      self.b.host),
            'Copied: 50%, 512.0 MiB of 1.0 GiB, 25.6 MiB/s, 20 s left.',
            '%s keeps its source, logical volume volume-%s, until the copy '
            'is complete: do not switch that node off.' % (
                self.a.host, self.volume.id)], lines[-3:])
        self.assertIn('It is attached on node2, for instance ', lines[2])

    def test_session_is_lost(self):
        self.hydrate()
        self.lose_session()
        text = '\n'.join(self.show(1))
        for part in ('session to its source is lost', 'check node1',
                     '%s has not reported' % self.a.host):
            self.assertIn(part, text)

    def test_what_is_left(self):
        snapshot = self.snapshot_row()
        with self.cloud.on(self.a):
            snapshot.update(self.a.driver.create_snapshot(snapshot) or {})
        snapshot.save()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(4)
        with self.cloud.on(self.a):
            self.a.driver._update_volume_stats()
        self.b.jobs.add('recover', self.volume.id)
        text = '\n'.join(self.show())
        for part, host in (
                ('Its snapshot %s, which is available, is on %%s.' %
                 snapshot.id, self.a.host),
                ('left behind on %s: the origin of snapshots', self.a.host),
                ('cinder-volume on %s is still trying: recover.',
                 self.b.host)):
            self.assertIn(part % host, text)

    def test_document(self):
        self.hydrate()
        found = self.document('show %s -f json' % self.volume.id)
        self.assertEqual(
            ('attached', 'hydrating', self.a.host, {}),
            (found['attachments'][0]['status'], found['moves'][0]['state'],
             found['sources'][0]['backend'], found['silent']))
        self.assertEqual(self.show(), found['text'])

    def test_only_its_nodes_are_asked(self):
        self.cloud.add('node3')
        self.hydrate()
        self.cloud.steps.start()
        self.show()
        self.assertEqual(
            ['node1: ask %s to report' % each.host
             for each in (self.a, self.b)],
            [step for step in self.cloud.steps.log if 'ask' in step])

    def test_no_volume(self):
        self.hydrate()
        for volume, word in (('nothing', 'no volume nothing'),
                             (self.row().name_id, self.volume.id)):
            code, _text = self.call('show ' + volume)
            self.assertEqual((1, True), (code, word in self.error))


class RemoteTestCase(VerbTestCase):
    """A volume that a node without room for it uses over iSCSI."""

    def setUp(self):
        super().setUp()
        self.a.driver.configuration.dmclone_remote_attach_without_room = True
        self.a.parts.connections._target_driver = test_driver.Remote()
        self.set_room(cloud.GIB // 2)
        record = self.cloud.attachment(self.volume, self.b, connected=False)
        with self.cloud.on(self.a):
            self.a.driver.initialize_connection(self.row(), self.b.connector)
        record.connector = self.b.connector
        record.save()

    def set_room(self, size):
        self.b.lvm.groups[cloud.GROUP] = size

    def look(self):
        with self.cloud.on(self.a):
            self.a.driver.get_volume_stats(refresh=True)
        self.cloud.pass_time(remotes.PAUSE)

    FULL = 't is connected remotely on node2, which had no room for it'
    ROOM = ('. There is room now: live-migrate its instance to node1 and '
            'from there to node2, or detach the volume and attach it again')

    def test_show(self):
        for size, text in ((cloud.GIB // 2, 'I' + self.FULL + '.'),
                           (2 * cloud.GIB, 'I' + self.FULL + self.ROOM + '.')):
            self.set_room(size)
            self.look()
            code, shown = self.call('show ' + self.volume.id)
            self.assertEqual(0, code)
            self.assertIn(text, shown.splitlines())
        found = self.document('show %s -f json' % self.volume.id)
        self.assertEqual([{'volume': self.volume.id, 'node': 'node2',
                           'room': True}], found['remotes'])

    def test_status(self):
        for size, text in ((cloud.GIB // 2, self.FULL),
                           (2 * cloud.GIB, self.FULL + self.ROOM)):
            self.set_room(size)
            self.look()
            code, shown = self.call('status')
            self.assertEqual(0, code)
            self.assertIn('%s: i%s' % (self.volume.id, text),
                          shown.splitlines())
        first, second = self.document('status -f json')
        self.assertEqual(
            ([{'volume': self.volume.id, 'node': 'node2', 'room': True}], []),
            (first['Remote'], second['Remote']))


class DisplayTestCase(base.PlainTestCase):

    MOVE = report.Move(volume='v', placeholder='p', source='a@x',
                       destination='b@x', role='destination',
                       state='hydrating')

    def test_each_wait_has_a_sentence(self):
        """Both fields are filled; a newer version's word is shown as it is."""
        self.assertEqual(set(Wait) - {Wait.NOTHING}, set(display.WAITS))
        for wait in (*display.WAITS, 'newer'):
            text = display.reason(report.Move(**dict(
                vars(self.MOVE), waits=str(wait), source='')))
            self.assertNotIn('%', text)
            self.assertTrue(text)

    def test_sizes_and_times(self):
        self.assertEqual(
            ['0 KiB', '2 KiB', '1.0 MiB', '1.5 GiB', '3.0 TiB'],
            [display.size(each) for each in (
                1023, 2048, 2 ** 20, 3 * 2 ** 29, 3 * 2 ** 40)])
        self.assertEqual(
            ['59 s', '1 min', '2 h 5 min', '3 d 1 h'],
            [display.duration(each) for each in (
                59.9, 60, 7500, 73 * 3600)])

    def test_bar(self):
        self.assertEqual('[####----] ', display.bar(0.5, 10))
        self.assertEqual('', display.bar(0.5, 9))
        self.assertEqual(43, len(display.bar(0.999, 200)))
        self.assertIn('-', display.bar(0.999, 200))

    def test_seconds(self):
        self.assertEqual(2.5, reading.seconds('2.5'))
