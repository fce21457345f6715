# SPDX-License-Identifier: Apache-2.0
"""The verb pace: what it shows and changes, and its exit codes."""

import io
import types
from unittest import mock

import ddt
import fixtures

from dmclone_driver import exception
from dmclone_driver.move import rpcapi
from tests.unit.cmd import test_status
from tests.unit.fakes import cloud
from tests.unit.fakes import storage


@ddt.ddt
class PaceTestCase(test_status.VerbTestCase):

    def setUp(self):
        super().setUp()
        folder = self.useFixture(fixtures.TempDir()).path
        self.patch('dmclone_driver.move.pace_settings.CONF',
                   new=types.SimpleNamespace(state_path=folder))
        for node in self.cloud.nodes.values():
            node.start()
        self.cloud.settle()

    def move_two(self):
        """Have one volume copied, and one wait."""
        self.call('pace node2 --copies 1')
        self.volumes = [self.volume, self.a.create()]
        for volume in self.volumes:
            self.cloud.attach(volume, self.b)
        self.cloud.pass_time(200)
        self.b.look()

    def test_document(self):
        self.move_two()
        first, second = self.document('pace -f json')
        self.assertEqual(
            (self.a.host, 4, '90%', '90%', 0, 'nearly-complete', [], [],
             {'copying': 1, 'waiting': 0}, [], None, ''),
            tuple(first[name] for name in (
                'Node', 'Copies', 'Bandwidth in', 'Bandwidth out', 'Min rate',
                'Order', 'Copying', 'Waiting', 'Leaving', 'First', 'Link',
                'Reason')))
        self.assertEqual((1, 4), (second['Copies'],
                                  second['Configured']['copies']))
        self.assertEqual([{'volume': self.volumes[0].id, 'allowed': None}],
                         second['Copying'])
        self.assertEqual([{'volume': self.volumes[1].id, 'seconds': 200,
                           'refused': False, 'room': False}],
                         second['Waiting'])

    def test_people(self):
        self.move_two()
        self.call('pace node2 --bandwidth-in 1MiB')
        self.b.look()
        code, text = self.call('pace')
        self.assertEqual(0, code)
        self.assertIn('| 1 (configured: 4) | ', text)
        self.assertIn('| 1, 0 wait |', text)
        below = text.partition('\n\n')[2].splitlines()
        self.assertEqual([
            '%s is copied to node2@dmclone, at most at 1.0 MiB/s.' %
            self.volumes[0].id,
            '1. %s waits for 3 min for its turn on node2@dmclone.' %
            self.volumes[1].id], below)

    def test_changes(self):
        self.move_two()
        document, = self.document(
            'pace node1 -f json --copies 7 --bandwidth-in 50% '
            '--bandwidth-out 1Gbit --min-rate 64 --order longest-wait')
        self.assertEqual((7, '50%', '125MB', 64, 'longest-wait'), tuple(
            document[name] for name in ('Copies', 'Bandwidth in',
                                        'Bandwidth out', 'Min rate', 'Order')))
        self.assertEqual(64 * 2 ** 20, self.a.pacemaker._floor())
        document, = self.document('pace node1 -f json --configured '
                                  '--copies 2')
        self.assertEqual((2, '90%', '90%', 0, 'nearly-complete'), tuple(
            document[name] for name in ('Copies', 'Bandwidth in',
                                        'Bandwidth out', 'Min rate', 'Order')))

    def test_first(self):
        """The node is that of the volume."""
        self.move_two()
        code, text = self.call('pace --first ' + self.volumes[1].id)
        self.assertEqual(0, code)
        self.assertIn('wants first: %s.' % self.volumes[1].id,
                      ' '.join(text.split()))
        for _ in range(2):
            self.b.look()
        document, = self.document('pace node2@dmclone -f json')
        self.assertEqual(self.volumes[1].id, document['Copying'][0]['volume'])
        self.call('pace node2 --configured')
        document, = self.document('pace node2 -f json')
        self.assertEqual([], document['First'])

    def test_all_are_stopped(self):
        code, text = self.call('pace node2 --copies 0')
        self.assertEqual(0, code)
        self.assertIn('all copies are stopped', text)

    def test_waits_at_its_source(self):
        self.call('pace node1 --copies 0')
        self.cloud.attach(self.volume, self.b)
        for _ in range(2):
            self.b.look()
        code, text = self.call('pace node2')
        self.assertIn('a turn at the node of its source', text)
        # That is no trouble.
        self.assertEqual(0, self.call('status')[0])

    def test_waits_for_room(self):
        """Its node has a full thin pool, as if it had been made there."""
        self.cloud.attach(self.volume, self.b)
        path, = (path for path in self.b.lvm.volumes if '/volume-' in path)
        self.b.lvm.add_pool('volumes', 50 * storage.GIB)
        self.b.lvm.volumes[path].update(
            pool='/dev/volumes/volumes-pool', allocated=50 * storage.GIB)
        for _ in range(2):
            self.b.look()
        code, text = self.call('pace node2')
        self.assertEqual(0, code)
        self.assertIn('for room in the thin pool of node2@dmclone', text)
        code, text = self.call('status')
        self.assertEqual(1, code)
        self.assertIn('extend the pool', ' '.join(text.split()))

    def test_silent_node(self):
        self.b.server = None
        code, text = self.call('pace')
        self.assertEqual(1, code)
        self.assertIn('\nnode2@dmclone: no answer within', text)
        first, second = self.document('pace -f json', expected=1)
        self.assertIsNone(second['Copies'])
        self.assertIn('no answer', second['Reason'])

    def test_old_driver(self):
        self.patch('dmclone_driver.move.rpcapi.PeerClient.pace',
                   side_effect=exception.PeerTooOld(host='h', call='pace'))
        code, text = self.call('pace')
        self.assertEqual(1, code)
        self.assertIn('update it', text)

    def test_older_driver_without_a_minimum(self):
        """The rest of its limits can be seen."""
        with self.cloud.on(self.a):
            answer = rpcapi.PeerClient().pace(self.context, self.b.host)
        for limits in (answer['limits'], answer['configured']):
            del limits['min_rate']
        self.patch('dmclone_driver.move.rpcapi.PeerClient.pace',
                   return_value=answer)
        document, = self.document('pace node2 -f json')
        self.assertEqual((4, None), (document['Copies'],
                                     document['Min rate']))

    def refused(self, line):
        code, text = self.call('pace ' + line)
        self.assertEqual((1, ''), (code, text))
        return self.error

    def test_which_node(self):
        error = self.refused('--copies 3')
        for node in (self.a, self.b):
            self.assertIn(node.host, error)

    def test_unknown_node(self):
        self.assertIn('known on node9', self.refused('node9'))

    def test_unknown_volume(self):
        self.assertIn('no volume x', self.refused('--first x'))

    def test_volume_without_a_copy(self):
        self.assertIn(self.volume.id,
                      self.refused('--first ' + self.volume.id))

    def test_change_of_a_silent_node(self):
        self.b.server = None
        self.assertIn('did not answer pace',
                      self.refused('node2 --copies 3'))

    @ddt.data('--copies -1', '--copies many', '--bandwidth-in 0%',
              '--bandwidth-out much', '--min-rate 0.5', '--order size')
    def test_wrong(self, options):
        with mock.patch('sys.stderr', io.StringIO()):
            self.assertEqual(2, self.assertRaises(
                SystemExit, self.call, 'pace node1 ' + options).code)

    def test_reading_is_harmless(self):
        """It has no step but the calls, and no query on the nodes."""
        self.move_two()
        self.cloud.steps.start()
        with self.cloud.on(self.a):
            client = rpcapi.PeerClient()
            client.pace(self.context, self.b.host)
        self.assertEqual(['node1: ask node2@%s to pace' % cloud.BACKEND],
                         self.cloud.steps.log)
