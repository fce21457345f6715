# SPDX-License-Identifier: Apache-2.0
"""The RPC interface between peers, on Cinder's message transport.

Cinder's own create_volume and delete_volume would change the placeholder's
status, destroy its row when they fail, count capacity twice and return no
answer. Here every call returns an answer, can be repeated, and checks the
database before it acts: a message that arrives late does no harm.
"""

from __future__ import annotations

import collections.abc
from typing import Any
from typing import TYPE_CHECKING

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import rpc
from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_utils import uuidutils

from dmclone_driver import exception
from dmclone_driver.move import counts
from dmclone_driver.move.report import Report
from dmclone_driver.node import names

if TYPE_CHECKING:
    from dmclone_driver.move.activation import Activation
    from dmclone_driver.move.destination import Destination
    from dmclone_driver.move.followers import Followers
    from dmclone_driver.move.image_cache import ImageCache
    from dmclone_driver.move.jobs import Jobs
    from dmclone_driver.move.maps import Maps
    from dmclone_driver.move.outgoing import Outgoing
    from dmclone_driver.move.pace_requests import PaceRequests
    from dmclone_driver.move.released_sources import ReleasedSources
    from dmclone_driver.move.relocation import Relocation
    from dmclone_driver.move.reporter import Reporter
    from dmclone_driver.move.source import Source

LOG = logging.getLogger(__name__)

CONF = cfg.CONF

TOPIC = 'dmclone_driver'
#: What this backend serves. 1.1 has export_clone and move, too; 1.2 identify;
#: 1.3 report and take_along; 1.4 is_unwritten, lend and pace; 1.5 unallocated.
#: With 1.6 prepare takes what a thin source has allocated, with 1.7 pace a
#: minimum rate.
VERSION = '1.7'
# What peers with any version of this driver serve.
_OLDEST = '1.0'


class PeerClient:
    """Calls to the peers of a backend."""

    def __init__(self) -> None:
        target = messaging.Target(topic=TOPIC, version=_OLDEST)
        self._client = rpc.get_client(target)

    def _call(self, context: cinder_context.RequestContext,
              backend_host: str, method: str, timeout: float,
              version: str = _OLDEST, **arguments: Any) -> Any:
        """Call a peer; without time left, fail as if it did not answer.

        :param timeout: in seconds
        :param version: that the peer has to serve
        :raises: PeerUnreachable, PeerTooOld, PeerFailed
        """
        with counts.call():
            return self._do_call(context, backend_host, method, timeout,
                                 version, **arguments)

    def _do_call(self, context: cinder_context.RequestContext,
                 backend_host: str, method: str, timeout: float, version: str,
                 **arguments: Any) -> Any:
        if not timeout:
            raise exception.PeerUnreachable(host=backend_host, call=method,
                                            seconds=0)
        try:
            return self._client.prepare(
                server=backend_host, timeout=timeout, version=version).call(
                    context, method, **arguments)
        except messaging.MessagingTimeout:
            raise exception.PeerUnreachable(host=backend_host, call=method,
                                            seconds=round(timeout))
        except messaging.MessagingException as error:
            if _is_too_old(error):
                raise exception.PeerTooOld(host=backend_host, call=method)
            raise exception.PeerFailed(host=backend_host, reason=error)
        except cinder_exception.CinderException as error:
            raise exception.PeerFailed(host=backend_host, reason=error.msg)

    def describe(self, context: cinder_context.RequestContext,
                 backend_host: str, timeout: float = 10) -> dict[str, Any]:
        """Ask a peer for the answer of :meth:`Destination.describe`.

        :returns: its iSCSI name, its free space in GiB, less
            ``reserved_percentage``, and its driver's capabilities:
            ``{'initiator': 'iqn.1993-08.org.debian:01:...',
            'free_gb': 82.5, 'reserved_percentage': 10, 'capabilities':
            {'dmclone_metadata_backend': 'lvm',
            'dmclone_metadata_persistent': True}}``; see there for thin ones
        """
        return self._call(context, backend_host, 'describe', timeout)

    def prepare(self, context: cinder_context.RequestContext,
                backend_host: str, timeout: float, **request: Any) -> str:
        """Have a peer prepare a destination; see Destination.prepare.

        :param request: arguments, and the version that the peer has to serve
            if it is not the oldest
        :returns: the handle's path there: ``/dev/mapper/dmclone-<id>``
        """
        return self._call(context, backend_host, 'prepare', timeout,
                          **request)

    def activate(self, context: cinder_context.RequestContext,
                 backend_host: str, placeholder_id: str, sealed: bool,
                 timeout: float = 20) -> None:
        """Tell a peer that its destination is the volume's home now.

        :param sealed: whether the source refuses writes already
        """
        self._call(context, backend_host, 'activate', timeout,
                   placeholder_id=placeholder_id, sealed=sealed)

    def delete_destination(self, context: cinder_context.RequestContext,
                           backend_host: str, placeholder_id: str,
                           timeout: float = 20) -> bool:
        """Have a peer delete a destination that was never written.

        :returns: False if it was, or may have been, written
        """
        return self._call(context, backend_host, 'delete_destination', timeout,
                          placeholder_id=placeholder_id)

    def export_source(self, context: cinder_context.RequestContext,
                      backend_host: str, placeholder_id: str) -> None:
        """Have a source's node serve it (again) to its initiator."""
        self._call(context, backend_host, 'export_source', 20,
                   placeholder_id=placeholder_id)

    def export_clone(self, context: cinder_context.RequestContext,
                     backend_host: str, placeholder_id: str,
                     volume_id: str) -> None:
        """Have a node snapshot a volume, and serve that to its clone."""
        self._call(context, backend_host, 'export_clone', 20, version='1.1',
                   placeholder_id=placeholder_id, volume_id=volume_id)

    def seal_source(self, context: cinder_context.RequestContext,
                    backend_host: str, placeholder_id: str,
                    timeout: float = 10) -> bool:
        """Have a source's node refuse writes to it.

        :returns: False if it is still open
        """
        return self._call(context, backend_host, 'seal_source', timeout,
                          placeholder_id=placeholder_id)

    def is_unwritten(self, context: cinder_context.RequestContext,
                     backend_host: str, placeholder_id: str) -> bool:
        """Ask a source's node for the answer of Source.is_unwritten."""
        return self._call(context, backend_host, 'is_unwritten', 10,
                          version='1.4', placeholder_id=placeholder_id)

    def unallocated(self, context: cinder_context.RequestContext,
                    backend_host: str, placeholder_id: str, length: int,
                    region: int, page: int, timeout: float) -> dict[str, Any]:
        """Ask a source's node for the answer of Maps.unallocated."""
        return self._call(context, backend_host, 'unallocated', timeout,
                          version='1.5', placeholder_id=placeholder_id,
                          length=length, region=region, page=page)

    def progress(self, context: cinder_context.RequestContext,
                 backend_host: str, placeholder_id: str,
                 timeout: float = 10) -> dict[str, Any] | None:
        """Ask a home for the answer of :meth:`Destination.progress`.

        :returns: e.g. ``{'complete': False, 'completing': False,
            'hydrated': 123, 'total': 16384}``
        """
        return self._call(context, backend_host, 'progress', timeout,
                          placeholder_id=placeholder_id)

    def seal_of(self, context: cinder_context.RequestContext,
                backend_host: str, name_id: str,
                timeout: float = 10) -> str | None:
        """Ask a node for the answer of :meth:`Source.seal_of`.

        :returns: a placeholder's id, '' or None
        """
        return self._call(context, backend_host, 'seal_of', timeout,
                          name_id=name_id)

    def release_source(self, context: cinder_context.RequestContext,
                       backend_host: str, placeholder_id: str) -> None:
        """Have a source's node delete it; does not wait for the deletion."""
        self._call(context, backend_host, 'release_source', 10,
                   placeholder_id=placeholder_id)

    def jobs(self, context: cinder_context.RequestContext,
             backend_host: str, timeout: float = 10) -> dict[str, list[str]]:
        """Ask a service what it is still trying to do.

        :returns: e.g. ``{"delete source": ["<id of a placeholder>"]}``, see
            :meth:`dmclone_driver.move.jobs.Jobs.left`
        """
        return self._call(context, backend_host, 'jobs', timeout)

    def identify(self, context: cinder_context.RequestContext,
                 backend_host: str, timeout: float = 10) -> dict[str, Any]:
        """Ask a peer for the answer of :meth:`Destination.identify`.

        :returns: that, with the driver's ``version``
        """
        return self._call(context, backend_host, 'identify', timeout,
                          version='1.2')

    def report(self, context: cinder_context.RequestContext,
               backend_host: str, timeout: float = 10) -> Report:
        """Ask a service what it is doing, which costs it next to nothing.

        :returns: see :class:`dmclone_driver.move.reporter.Reporter`
        """
        return Report.parse(self._call(context, backend_host, 'report',
                                       timeout, version='1.3'))

    def lend(self, context: cinder_context.RequestContext,
             backend_host: str, reader: str, wanted: list[str],
             timeout: float = 10) -> dict[str, float | None]:
        """Ask a node which copies from it may run; see Outgoing.lend."""
        return self._call(context, backend_host, 'lend', timeout,
                          version='1.4', reader=reader, wanted=wanted)

    def pace(self, context: cinder_context.RequestContext,
             backend_host: str, changes: dict[str, Any] | None = None,
             timeout: float = 10) -> dict[str, Any]:
        """Read, or change, the pace of a node; see PaceRequests.pace."""
        changes = changes or {}
        return self._call(context, backend_host, 'pace', timeout,
                          version='1.7' if 'min_rate' in changes else '1.4',
                          changes=changes)

    def move(self, context: cinder_context.RequestContext,
             backend_host: str, volume_id: str, node: str) -> dict[str, Any]:
        """Have a volume's home move it; see Relocation.move."""
        return self._call(context, backend_host, 'move',
                          CONF.rpc_response_timeout, version='1.1',
                          volume_id=volume_id, node=node)

    def take_along(self, context: cinder_context.RequestContext,
                   backend_host: str, snapshot_id: str) -> None:
        """Have a backend copy a snapshot to itself; see Followers."""
        self._call(context, backend_host, 'take_along',
                   CONF.rpc_response_timeout, version='1.3',
                   snapshot_id=snapshot_id)


def _is_too_old(error: messaging.MessagingException) -> bool:
    """Whether a peer does not serve the version of a call.

    Its error arrives as it is, or as the name of its class.
    """
    return 'UnsupportedVersion' in (
        type(error).__name__, getattr(error, 'exc_type', None))


class PeerEndpoint:
    """The calls that this backend serves to its peers and to commands."""

    target = messaging.Target(version=VERSION)

    def __init__(self, destination: Destination, activation: Activation,
                 source: Source, released_sources: ReleasedSources,
                 image_cache: ImageCache, jobs: Jobs,
                 relocation: Relocation, followers: Followers,
                 reporter: Reporter, pace: PaceRequests, outgoing: Outgoing,
                 maps: Maps, version: str) -> None:
        self._destination = destination
        self._activation = activation
        self._source = source
        self._released_sources = released_sources
        self._image_cache = image_cache
        self._jobs = jobs
        self._relocation = relocation
        self._reporter = reporter
        self._followers = followers
        self._pace = pace
        self._outgoing = outgoing
        self._maps = maps
        self._version = version

    def describe(self,
                 context: cinder_context.RequestContext) -> dict[str, Any]:
        return self._destination.describe()

    def identify(self,
                 context: cinder_context.RequestContext) -> dict[str, Any]:
        return dict(self._destination.identify(), version=self._version)

    def prepare(self, context: cinder_context.RequestContext,
                **request: Any) -> str:
        return _answer(self._destination.prepare, context, **request)

    def activate(self, context: cinder_context.RequestContext,
                 placeholder_id: str, sealed: bool) -> None:
        _answer(self._activation.activate, context, placeholder_id,
                sealed=sealed)

    def delete_destination(self, context: cinder_context.RequestContext,
                           placeholder_id: str) -> bool:
        return _answer(self._destination.delete, context, placeholder_id)

    def export_source(self, context: cinder_context.RequestContext,
                      placeholder_id: str) -> None:
        _answer(self._source.export_again, context, placeholder_id)

    def export_clone(self, context: cinder_context.RequestContext,
                     placeholder_id: str, volume_id: str) -> None:
        _answer(self._image_cache.serve, context, placeholder_id, volume_id)

    def seal_source(self, context: cinder_context.RequestContext,
                    placeholder_id: str) -> bool:
        return _answer(self._source.seal, context, placeholder_id)

    def is_unwritten(self, context: cinder_context.RequestContext,
                     placeholder_id: str) -> bool:
        return _answer(self._source.is_unwritten, context, placeholder_id)

    def unallocated(self, context: cinder_context.RequestContext,
                    placeholder_id: str, length: int, region: int,
                    page: int) -> dict[str, Any]:
        return _answer(self._maps.unallocated, context, placeholder_id, length,
                       region, page)

    def progress(self, context: cinder_context.RequestContext,
                 placeholder_id: str) -> dict[str, Any] | None:
        return _answer(self._destination.progress, placeholder_id)

    def seal_of(self, context: cinder_context.RequestContext,
                name_id: str) -> str | None:
        return _answer(self._source.seal_of, name_id)

    def release_source(self, context: cinder_context.RequestContext,
                       placeholder_id: str) -> None:
        self._outgoing.forget(placeholder_id)
        _answer(self._released_sources.release_soon, context, placeholder_id)

    def jobs(self,
             context: cinder_context.RequestContext) -> dict[str, list[str]]:
        return self._jobs.left()

    def report(self,
               context: cinder_context.RequestContext) -> dict[str, Any]:
        return _answer(self._reporter.report, context).as_dict()

    def lend(self, context: cinder_context.RequestContext, reader: str,
             wanted: list[str]) -> dict[str, float | None]:
        return _answer(self._outgoing.lend, reader, wanted)

    def pace(self, context: cinder_context.RequestContext,
             changes: dict[str, Any]) -> dict[str, Any]:
        return _answer(self._pace.pace, context, changes)

    def move(self, context: cinder_context.RequestContext, volume_id: str,
             node: str) -> dict[str, Any]:
        return _answer(self._relocation.move, context, volume_id, node)

    def take_along(self, context: cinder_context.RequestContext,
                   snapshot_id: str) -> None:
        _answer(self._followers.take_along, context, snapshot_id)


def _answer(function: collections.abc.Callable[..., Any], *args: Any,
            **kwargs: Any) -> Any:
    """Call a function; convert its error to a class the caller knows."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        refused = isinstance(error, (exception.MoveRefused,
                                     exception.PaceRefused))
        LOG.error('RPC %(method)s for %(ids)s failed: %(error)s', {
            'method': function.__name__, 'error': error,
            'ids': ', '.join(
                names.text(each) for each in (*args, *kwargs.values())
                if uuidutils.is_uuid_like(each))}, exc_info=not refused)
        raise cinder_exception.VolumeDriverException(
            message=getattr(error, 'msg', None) or str(error))


def serve(backend_host: str,
          endpoint: PeerEndpoint) -> messaging.MessageHandlingServer:
    """Start to answer peers; return the running server."""
    server = rpc.get_server(
        messaging.Target(topic=TOPIC, server=backend_host), [endpoint])
    server.start()
    return server
