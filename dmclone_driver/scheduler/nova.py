# SPDX-License-Identifier: Apache-2.0
"""The filter and the weigher that Nova's scheduler loads.

The only module that imports Nova, which is not required by this package.
"""

# Nova's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import functools
import itertools
import threading
import time
from typing import Any

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.scheduler import filters
from nova.scheduler import host_manager
from nova.scheduler import utils
from nova.scheduler import weights
from nova.volume import cinder
from oslo_config import cfg
from oslo_log import log as logging

from dmclone_driver.scheduler import demand as demand_module
from dmclone_driver.scheduler.demand import Demand
from dmclone_driver.scheduler.demand import New
from dmclone_driver.scheduler import holds
from dmclone_driver.scheduler import opts
from dmclone_driver.scheduler import queries

CONF = cfg.CONF
CONF.register_opts(opts.SCHEDULER_OPTS, group=opts.GROUP)
LOG = logging.getLogger(__name__)

# Seconds for which an answer to the filter is good for the weigher, and for
# the holds of the node that was chosen.
_ONE_REQUEST = 60
# Maximum of hosts in one log line.
_SHOWN = 5


def _get(path: str) -> dict[str, Any]:
    """Return Cinder's answer, by Nova's own client and account."""
    client = cinder.cinderclient(
        nova_context.get_admin_context(),
        microversion=queries.MICROVERSION, skip_version_check=True).client
    return client.get(path, connect_retries=1,
                      timeout=CONF[opts.GROUP].dmclone_cinder_timeout)[1]


def _block_devices(instance: str
                   ) -> collections.abc.Iterable[objects.BlockDeviceMapping]:
    """Return the block devices of an instance, new or not."""
    context = nova_context.get_admin_context()
    try:
        return objects.BuildRequest.get_by_instance_uuid(
            context, instance).block_device_mappings
    except exception.BuildRequestNotFound:
        mapping = objects.InstanceMapping.get_by_instance_uuid(
            context, instance)
    with nova_context.target_cell(context, mapping.cell_mapping) as cell:
        return objects.BlockDeviceMappingList.get_by_instance_uuid(
            cell, instance)


class Volumes:
    """What the filter and the weigher know of the volumes of instances."""

    def __init__(self) -> None:
        self._queries = queries.Queries(
            _get, lambda: CONF[opts.GROUP].dmclone_cache_time)
        self._holds = holds.Holds()
        #: Demands by instances, with the time when they were made.
        self._found: dict[str, tuple[float, Demand | None]] = {}
        # A scheduler handles several requests at once.
        self._lock = threading.Lock()

    def find(self, spec: objects.RequestSpec) -> Demand | None:
        """Ask what the volumes of a request's instance need.

        :returns: None if none are of this driver, or if that is not known
        """
        instance, demand = spec.instance_uuid, None
        try:
            demand = self._ask(instance)
        except Exception as error:
            # Whether it has volumes of this driver is not known either.
            LOG.warning(
                'Instance %(instance)s is placed without regard to its '
                'volumes, since they could not be looked up: %(error)s',
                {'instance': instance, 'error': error})
        now = time.monotonic()
        with self._lock:
            self._found = {other: found for other, found
                           in self._found.items()
                           if now < found[0] + _ONE_REQUEST}
            self._found[instance] = now, demand
        return demand

    def found(self, spec: objects.RequestSpec) -> Demand | None:
        """Return what the filter has found for a request, or find it."""
        kept = self._found.get(spec.instance_uuid)
        return kept[1] if kept else self.find(spec)

    def _ask(self, instance: str) -> Demand | None:
        devices = [each for each in _block_devices(instance)
                   if each.is_volume]
        # Cinder is not asked about an instance without volumes.
        return demand_module.assemble(
            instance, [each.volume_id for each in devices if each.volume_id],
            [New(each.volume_size or 0, each.volume_type)
             for each in devices if not each.volume_id],
            self._queries, self._holds) if devices else None

    def hold_when_chosen(self, host: host_manager.HostState) -> None:
        """Hold room on a host for each instance that Nova places there.

        Nova tells the state of a host that it was chosen, and no one else.
        The state is kept from request to request.
        """
        consume = host.consume_from_request
        if not isinstance(consume, _Consume):
            host.consume_from_request = _Consume(consume, self._hold, host)

    def _hold(self, host: host_manager.HostState,
              spec: objects.RequestSpec) -> None:
        demand = self._found.get(spec.instance_uuid, (0, None))[1]
        if demand:
            demand_module.hold(demand, host.host, self._holds)


class _Consume:
    """The method of a host's state that Nova calls when it was chosen."""

    def __init__(self, consume: collections.abc.Callable[..., Any],
                 hold: collections.abc.Callable[..., None],
                 host: host_manager.HostState) -> None:
        self._consume = consume
        self._hold = hold
        self._host = host

    def __call__(self, spec: objects.RequestSpec) -> Any:
        self._hold(self._host, spec)
        return self._consume(spec)


@functools.cache
def volumes() -> Volumes:
    """Return what the filter and the weigher of this process share."""
    return Volumes()


class VolumeRoomFilter(filters.BaseHostFilter):
    """Pass the hosts to which all volumes of the instance can go."""

    def filter_all(
            self, hosts: collections.abc.Iterable[host_manager.HostState],
            spec: objects.RequestSpec) -> list[host_manager.HostState]:
        """Return the hosts that pass, after one look-up for all."""
        hosts = list(hosts)
        # A rebuild stays on its host.
        demand = (None if utils.request_is_rebuild(spec) else
                  volumes().find(spec))
        if demand is None:
            return hosts
        passed, refused = [], {}
        for host in hosts:
            verdict = demand.verdict(host.host)
            if verdict.reason:
                refused[host.host] = verdict.reason
            else:
                volumes().hold_when_chosen(host)
                passed.append(host)
        self._log(demand, passed, refused)
        return passed

    @staticmethod
    def _log(demand: Demand, passed: list[host_manager.HostState],
             refused: dict[str, str]) -> None:
        if not refused:
            return
        for host, reason in refused.items():
            LOG.debug('Host %(host)s cannot take %(demand)s: %(reason)s',
                      {'host': host, 'demand': demand, 'reason': reason})
        LOG.log(
            logging.INFO if passed else logging.WARNING,
            '%(passed)d of %(all)d hosts can take %(demand)s; %(reasons)s', {
                'passed': len(passed), 'all': len(passed) + len(refused),
                'demand': demand, 'reasons': '; '.join(
                    '%s cannot: %s' % each
                    for each in itertools.islice(refused.items(), _SHOWN))})


class VolumePlaceWeigher(weights.BaseHostWeigher):
    """Prefer the hosts that have the volumes, then those with room."""

    # Without these Nova would stretch any difference to the whole range.
    minval = 0
    maxval = 1

    def weight_multiplier(self, host: host_manager.HostState) -> float:
        """Return the multiplier, which an aggregate can override."""
        return utils.get_weight_multiplier(
            host, 'dmclone_weight_multiplier',
            CONF[opts.GROUP].dmclone_weight_multiplier)

    def _weigh_object(self, host: host_manager.HostState,
                      spec: objects.RequestSpec) -> float:
        demand = volumes().found(spec)
        return demand.verdict(host.host).weight if demand else 0
