# SPDX-License-Identifier: Apache-2.0
"""The only module that asks Cinder's API, for pools and volumes."""

import collections.abc
import datetime
import time
from typing import Any
import urllib.parse

from oslo_utils import timeutils

from dmclone_driver.scheduler.answers import Answer
from dmclone_driver.scheduler.answers import Pool
from dmclone_driver.scheduler.answers import Volume

#: The lowest version of Cinder's API with all that is asked for: volumes by
#: the time of their creation, and the ids of their types.
MICROVERSION = '3.63'
#: Ids in one query: its address may have some 8000 characters.
AT_ONCE = 100
# Maximum of new volumes: Cinder's own limit (osapi_max_limit).
_NEWEST = 1000
# Pools report each minute (backend_stats_polling_interval), and may not know
# of a volume for half a minute. The rest is for the clocks of the nodes.
_LATELY = datetime.timedelta(minutes=3)


class NoAnswer(Exception):
    """Cinder has not answered, or not as expected."""


class Queries:
    """Asks Cinder; what many requests need is kept for some seconds.

    The number of queries per request depends neither on the number of nodes
    nor on the number of volumes in the cloud.
    """

    def __init__(self, get: collections.abc.Callable[[str], Answer],
                 cache_time: collections.abc.Callable[[], float]) -> None:
        """Keep the functions.

        :param get: returns the answer to a path with its query
        :param cache_time: returns the seconds for which answers are kept
        """
        self._get = get
        self._cache_time = cache_time
        #: Answers, and until when they are used, by what was asked.
        self._kept: dict[str, tuple[float, Any]] = {}
        #: Until when Cinder is not asked, and why.
        self._silence: tuple[float, str] = (-1, '')

    def pools(self) -> list[Pool]:
        """Return the pools of all drivers that are up.

        Cinder could leave out those that do not fit a type, but it fails to
        do so if CapacityFilter is enabled, which needs a size
        (HostManager._filter_pools_by_volume_type in
        cinder/scheduler/host_manager.py).

        :raises: NoAnswer
        """
        return self._cached('pools', lambda: [
            Pool.parse(answer) for answer in self._ask(
                '/scheduler-stats/get_pools', 'pools', {'detail': 'true'})])

    def extra_specs(self) -> dict[str | None, dict[str, str]]:
        """Return the extra specs of all types, by their ids and names.

        :raises: NoAnswer
        """
        return self._cached('types', self._find_extra_specs)

    def _find_extra_specs(self) -> dict[str | None, dict[str, str]]:
        return {answer[key]: answer['extra_specs'] for answer in self._ask(
            '/types', 'volume_types', {'is_public': None})
            for key in ('name', 'id')}

    def volumes(self, ids: collections.abc.Iterable[str]) -> list[Volume]:
        """Return those of some volumes that exist.

        :raises: NoAnswer
        """
        wanted, found = list(ids), []
        for first in range(0, len(wanted), AT_ONCE):
            # Cinder reads a list as Python does (API.check_volume_filters in
            # cinder/volume/api.py).
            found += self._volumes(id=str(wanted[first:first + AT_ONCE]))
        return found

    def lately(self) -> list[Volume]:
        """Return the volumes whose room the pools may not know to be taken.

        These are new volumes, and both ends of new moves: whether a move has
        switched over cannot be seen here. The moved volumes themselves have
        the time at which the moves began.

        :raises: NoAnswer
        """
        return self._cached('lately', self._find_lately)

    def _find_lately(self) -> list[Volume]:
        since = timeutils.utcnow() - _LATELY
        new = self._volumes(created_at='gt:%s' % since.isoformat(
            timespec='seconds'), limit=_NEWEST)
        begun = {row.moves: row.created for row in reversed(new) if row.moves}
        rows = {row.id: row for row in new}
        for row in self.volumes(list(begun)[-AT_ONCE:]):
            rows[row.id] = row.since(begun[row.id])
        return list(rows.values())

    def _volumes(self, **query: Any) -> list[Volume]:
        return [Volume.parse(answer) for answer in self._ask(
            '/volumes/detail', 'volumes', dict(query, all_tenants=1))]

    def _cached(self, key: str,
                ask: collections.abc.Callable[[], Any]) -> Any:
        until, value = self._kept.get(key, (-1.0, None))
        if time.monotonic() < until:
            return value
        value = ask()
        self._kept[key] = (time.monotonic() + self._cache_time(), value)
        return value

    def _ask(self, path: str, key: str, query: dict[str, Any]
             ) -> list[Answer]:
        until, reason = self._silence
        if time.monotonic() < until:
            raise NoAnswer(reason)
        try:
            return self._get('%s?%s' % (
                path, urllib.parse.urlencode(query)))[key]
        except Exception as error:
            # Otherwise each request would wait as long as this one.
            self._silence = (time.monotonic() + self._cache_time(),
                             str(error) or type(error).__name__)
            raise NoAnswer(self._silence[1]) from error
