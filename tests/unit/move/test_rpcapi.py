# SPDX-License-Identifier: Apache-2.0
"""RPC between peers, over the fake transport of oslo.messaging."""

import types
from unittest import mock

from cinder import context as cinder_context
from cinder import exception as cinder_exception
import oslo_messaging as messaging

from dmclone_driver import exception
from dmclone_driver.move import rpcapi
from tests.unit import base

HOST = 'node2@dmclone'


class Part:
    """Replaces a part of the backend; returns the call and its arguments."""

    def __init__(self):
        self.error = None

    def describe(self):
        return {'initiator': 'iqn', 'free_gb': 1.5}

    def identify(self):
        return {'time': 1.5}

    def __getattr__(self, name):
        def answer(context, *args, **kwargs):
            if self.error:
                raise self.error
            return [name, context.user_id, *args,
                    *sorted(kwargs.items())]
        return answer


class RpcApiTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.destination, self.activation = Part(), Part()
        self.source, self.released_sources = Part(), Part()
        self.relocation = Part()
        self.image_cache, self.followers, self.maps = Part(), Part(), Part()
        self.reporter = mock.Mock()
        self.pace, self.outgoing = Part(), mock.Mock(
            **{'lend.side_effect': lambda *args: list(args)})
        self.server = rpcapi.serve(HOST, rpcapi.PeerEndpoint(
            self.destination, self.activation, self.source,
            self.released_sources, self.image_cache,
            mock.Mock(**{'left.return_value': {'recover': ['x']}}),
            self.relocation, self.followers, self.reporter, self.pace,
            self.outgoing, self.maps, '0.1.0'))
        self.addCleanup(self.server.stop)
        self.client = rpcapi.PeerClient()
        self.context = cinder_context.RequestContext('the-user', 'project')

    def test_describe(self):
        self.assertEqual({'initiator': 'iqn', 'free_gb': 1.5},
                         self.client.describe(self.context, HOST))

    def test_jobs(self):
        self.assertEqual({'recover': ['x']},
                         self.client.jobs(self.context, HOST))

    def test_identify(self):
        self.assertEqual({'time': 1.5, 'version': '0.1.0'},
                         self.client.identify(self.context, HOST))

    def test_lend(self):
        self.assertEqual(
            ['reader', ['copy']],
            self.client.lend(self.context, HOST, 'reader', ['copy']))

    def test_pace(self):
        for changes in ({}, {'copies': 2}):
            self.assertEqual(['pace', 'the-user', changes],
                             self.client.pace(self.context, HOST, changes))

    def test_pace_refused(self):
        """The reason arrives, and there is no traceback in the log."""
        self.pace.error = exception.PaceRefused(host=HOST, reason='no way')
        with mock.patch('dmclone_driver.move.rpcapi.LOG.error') as error:
            refused = self.assertRaises(exception.PeerFailed,
                                        self.client.pace, self.context, HOST)
        self.assertIn('no way', refused.msg)
        self.assertFalse(error.call_args.kwargs['exc_info'])

    def test_peer_that_lends_nothing(self):
        with mock.patch.object(rpcapi.PeerEndpoint.target, 'version', '1.3'):
            self.assertRaises(exception.PeerTooOld, self.client.lend,
                              self.context, HOST, 'reader', [])

        with mock.patch.object(rpcapi.PeerEndpoint.target, 'version', '1.6'):
            self.client.pace(self.context, HOST, {'copies': 1})
            self.assertRaises(exception.PeerTooOld, self.client.pace,
                              self.context, HOST, {'min_rate': 1})

    def test_peer_of_the_version_before(self):
        with mock.patch.object(rpcapi.PeerEndpoint.target, 'version', '1.1'):
            error = self.assertRaises(exception.PeerTooOld,
                                      self.client.identify, self.context,
                                      HOST)
        for part in (HOST, 'identify', 'update it'):
            self.assertIn(part, error.msg)

    def test_peer_that_takes_no_snapshot_along(self):
        with mock.patch.object(rpcapi.PeerEndpoint.target, 'version', '1.2'):
            self.assertRaises(exception.PeerTooOld, self.client.take_along,
                              self.context, HOST, 'snapshot')

    def test_older_version_in_the_form_of_a_message(self):
        """The class of the error is not always known to the caller."""
        self.client._client = types.SimpleNamespace(
            prepare=mock.Mock(side_effect=messaging.RemoteError(
                'UnsupportedVersion', 'Endpoint does not support RPC 1.2')))
        self.assertRaises(exception.PeerTooOld, self.client.identify,
                          self.context, HOST)

    def test_peer_of_an_older_version(self):
        """It answers other calls, and refuses these."""
        with mock.patch.object(rpcapi.PeerEndpoint.target, 'version', '1.0'):
            self.assertRaises(exception.PeerFailed, self.client.export_clone,
                              self.context, HOST, 'copy', 'volume')
            self.assertRaises(exception.PeerFailed, self.client.move,
                              self.context, HOST, 'volume', 'node')
            self.client.describe(self.context, HOST)

    def test_move(self):
        self.assertEqual(['move', 'the-user', 'v', 'node3'],
                         self.client.move(self.context, HOST, 'v', 'node3'))

    def test_prepare(self):
        answer = self.client.prepare(self.context, HOST, 5, size=2 ** 46,
                                     auth=None)
        self.assertEqual(['prepare', 'the-user', ('auth', None),
                          ('size', 2 ** 46)], answer)

    def test_answers(self):
        self.assertEqual(['delete', 'the-user', 'p'],
                         self.client.delete_destination(self.context, HOST,
                                                        'p'))
        self.assertEqual(['seal', 'the-user', 'p'],
                         self.client.seal_source(self.context, HOST, 'p'))

    def test_limit_of_a_seal(self):
        prepare = mock.Mock(wraps=self.client._client.prepare)
        self.client._client = types.SimpleNamespace(prepare=prepare)
        self.client.seal_source(self.context, HOST, 'p', timeout=3)
        prepare.assert_called_once_with(server=HOST, timeout=3,
                                        version='1.0')

    def test_which_part_acts(self):
        done = []
        for part, method, name, more in (
                ('activation', 'activate', 'activate', (False,)),
                ('source', 'export_again', 'export_source', ()),
                ('followers', 'take_along', 'take_along', ()),
                ('released_sources', 'release_soon', 'release_source', ())):
            setattr(getattr(self, part), method,
                    lambda context, *args, name=name, **kwargs:
                    done.append((name, args, kwargs)))
            self.assertIsNone(getattr(self.client, name)(
                self.context, HOST, 'p', *more))
        self.assertEqual([('activate', ('p',), {'sealed': False}),
                          ('export_source', ('p',), {}),
                          ('take_along', ('p',), {}),
                          ('release_source', ('p',), {})], done)

    def fail(self, error):
        self.destination.error = error
        return self.assertRaises(
            exception.PeerFailed, self.client.delete_destination, self.context,
            HOST, 'p')

    def test_errors_say_who_and_why(self):
        error = self.fail(exception.MoveGone(
            volume='the-volume', placeholder='p', reason='the-reason'))
        for part in (HOST, 'the-volume', 'the-reason'):
            self.assertIn(part, error.msg)

    def test_errors_that_the_other_side_need_not_know(self):
        error = self.fail(type('OnlyHere', (Exception,), {})('the-reason'))
        self.assertIn('the-reason', error.msg)
        self.assertIsInstance(error, cinder_exception.CinderException)

    def test_nobody_answers(self):
        client = self.client._client
        self.client._client = types.SimpleNamespace(
            prepare=lambda server, timeout, version: client.prepare(
                server=server, timeout=0.1))
        error = self.assertRaises(exception.PeerUnreachable,
                                  self.client.delete_destination, self.context,
                                  'node9@dmclone', 'p')
        for part in ('node9@dmclone', 'delete_destination', '20'):
            self.assertIn(part, error.msg)
        # What is left of a request's time is said in whole seconds.
        error = self.assertRaises(
            exception.PeerUnreachable, self.client._call, self.context,
            'node9@dmclone', 'prepare', 10.355835391999904)
        self.assertIn(' within 10 seconds', error.msg)
