# SPDX-License-Identifier: Apache-2.0
"""Checks of the peers of a backend: answer, clock and network."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
from typing import Any

from cinder import context as cinder_context
from oslo_config import cfg

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.peers import Peer
from dmclone_driver.move.rpcapi import PeerClient

CONF = cfg.CONF
CONF.import_opt('report_interval', 'cinder.service')
CONF.import_opt('service_down_time', 'cinder.common.config')

ANSWER, CLOCK, NETWORK = 'peer', 'clock', 'network'

# Seconds that a peer has to answer.
TIMEOUT = 10


def check(context: cinder_context.RequestContext,
          found: collections.abc.Iterable[Peer], client: PeerClient,
          host: Host, version: str) -> collections.abc.Iterator[Result]:
    """Yield three results for each peer.

    :param version: of this node's driver
    """
    for peer in found:
        before = host.now()
        try:
            answer = client.identify(context, peer.backend_host, TIMEOUT)
        except exception.PeerTooOld as error:
            yield from _unknown(
                error.msg.partition(';')[0],
                _('update the driver there and restart cinder-volume'),
                peer, ANSWER, CLOCK, NETWORK)
            continue
        except exception.PeerError as error:
            yield result.failed(
                ANSWER, error.msg,
                _('start cinder-volume there; if the node is lost for good, '
                  'use dmclone-forget-node'), peer.backend_host)
            yield from _unknown(_('the peer did not answer'),
                                _('see its line above'), peer, CLOCK, NETWORK)
            continue
        yield _check_version(answer, version, peer)
        yield _check_clock(answer, before, host.now(), peer)
        yield _check_network(answer, host, peer)


def _unknown(text: str, remedy: str, peer: Peer,
             *names: str) -> collections.abc.Iterator[Result]:
    for name in names:
        yield result.unknown(name, text, remedy, peer.backend_host)


def _check_version(answer: dict[str, Any], version: str,
                   peer: Peer) -> Result:
    theirs = answer['version']
    return result.ok(
        ANSWER, _('answers, version %s') % theirs if theirs == version else
        _('answers, version %(theirs)s; this node has %(mine)s') % {
            'theirs': theirs, 'mine': version}, peer.backend_host)


def _check_clock(answer: dict[str, Any], before: float, after: float,
                 peer: Peer) -> Result:
    """Compare the clocks.

    Cinder takes a service for dead whose heartbeat is older than
    service_down_time. It is up to report_interval old anyway, and both the
    reader's and the writer's clock may be wrong.
    """
    offset = answer['time'] - (before + after) / 2
    error = (after - before) / 2
    limit = (CONF.service_down_time - CONF.report_interval) / 2
    text = _('%(offset)+.1f seconds, known to %(error).1f seconds') % {
        'offset': offset, 'error': error}
    if abs(offset) - error > limit:
        return result.failed(
            CLOCK, _('%(text)s: more than %(limit)d, so that Cinder may take '
                     'a service that runs for dead') % {'text': text,
                                                        'limit': limit},
            _('synchronise the clocks of both nodes, with NTP'),
            peer.backend_host)
    return result.ok(CLOCK, text, peer.backend_host)


def _check_network(answer: dict[str, Any], host: Host, peer: Peer) -> Result:
    """Connect to the address from which the peer serves sources."""
    address, port = answer['target_ip_address'], answer['target_port']
    where = '%s port %d' % (address, port)
    try:
        host.connect(address, port)
    except ConnectionRefusedError as error:
        # LIO listens only while it serves a source.
        if answer['target_helper'] != 'lioadm':
            return _unreachable(where, error, peer)
    except OSError as error:
        return _unreachable(where, error, peer)
    return result.ok(NETWORK, where, peer.backend_host)


def _unreachable(where: str, error: OSError, peer: Peer) -> Result:
    return result.failed(
        NETWORK, _('the iSCSI target at %(where)s cannot be reached from '
                   'here: %(error)s') % {'where': where, 'error': error},
        _('correct target_ip_address there, its firewall, or the network '
          'between the nodes, and check that its iSCSI target runs'),
        peer.backend_host)
