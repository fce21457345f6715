# SPDX-License-Identifier: Apache-2.0
"""Pools and volumes as values, parsed from the answers of Cinder's API."""

import dataclasses
import datetime
import math
from typing import Any

from oslo_utils import specs_matcher
from oslo_utils import timeutils

#: As this driver reports it.
VENDOR = 'dmclone_driver'
#: The begin of a placeholder's migration status, before the volume's id.
MOVE_STATUS = 'dmclone:'

# Seconds from a volume's row to its logical volume. A pool that reports
# earlier does not know that its room is taken. Preparing a destination takes
# a few seconds, and longer if many are prepared at once.
_MAKING = datetime.timedelta(seconds=30)

Answer = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Place:
    """A backend on a node; ``backend`` is alike on all nodes."""

    node: str
    backend: str

    @classmethod
    def parse(cls, host: str) -> 'Place':
        """Return the place of ``node@backend#pool``."""
        node, _, rest = host.partition('@')
        return cls(node, rest.partition('#')[0])


@dataclasses.dataclass(frozen=True)
class Volume:
    """A row of a volume, or of a placeholder, as Cinder shows it."""

    id: str
    #: In GiB.
    size: int
    #: None before Cinder has chosen one.
    place: Place | None
    volume_type: str | None
    in_group: bool
    creating: bool
    created: datetime.datetime
    #: Id of the volume whose move a placeholder stands for.
    moves: str | None

    @classmethod
    def parse(cls, answer: Answer) -> 'Volume':
        """Return the volume of one entry of ``volumes/detail``."""
        host = answer['os-vol-host-attr:host']
        status = answer.get('migration_status') or ''
        return cls(
            id=answer['id'], size=answer['size'],
            place=Place.parse(host) if host else None,
            volume_type=answer.get('volume_type_id'),
            in_group=bool(answer.get('group_id')),
            creating=answer['status'] == 'creating',
            created=_time(answer['created_at']),
            moves=(status.removeprefix(MOVE_STATUS)
                   if status.startswith(MOVE_STATUS) else None))

    def since(self, begun: datetime.datetime) -> 'Volume':
        """Return a volume that moves, with the time when that began."""
        return dataclasses.replace(self, created=begun, moves=self.id)


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool of any driver that is up, as it last reported itself.

    Its room can be read if it is of this driver.
    """

    place: Place
    capabilities: Answer = dataclasses.field(compare=False)

    @classmethod
    def parse(cls, answer: Answer) -> 'Pool':
        """Return the pool of one entry of ``get_pools``."""
        return cls(Place.parse(answer['name']), answer['capabilities'])

    @property
    def ours(self) -> bool:
        """Whether it is of this driver."""
        return self.capabilities.get('vendor_name') == VENDOR

    @property
    def total(self) -> float:
        """Its size in GiB."""
        return float(self.capabilities['total_capacity_gb'])

    @property
    def free(self) -> float:
        """The room in GiB, less the reserved percentage."""
        # As calculate_capacity_factors in cinder/scheduler/sched_utils.py.
        reserved = math.floor(
            self.total * self.capabilities['reserved_percentage'] / 100)
        return float(self.capabilities['free_capacity_gb']) - reserved

    @property
    def remote(self) -> bool:
        """Whether nodes without the backend may attach its volumes."""
        return bool(self.capabilities.get('dmclone_remote_attach'))

    @property
    def remote_without_room(self) -> bool:
        """Whether its volumes may be used on nodes that have no room."""
        return bool(self.capabilities.get(
            'dmclone_remote_attach_without_room'))

    def knows(self, volume: Volume) -> bool:
        """Whether its room is already less by a volume's size."""
        return (not volume.creating and volume.created + _MAKING <
                _time(self.capabilities['timestamp']))

    def fits(self, extra_specs: dict[str, str], new: bool) -> bool:
        """Whether a type allows volumes there.

        As this driver decides when a volume moves (Preflight), and Cinder's
        CapabilitiesFilter when one is created.

        :param new: whether it must have what the type wants, instead of only
            having no other value
        """
        for key, wanted in extra_specs.items():
            scope, _, name = key.rpartition(':')
            if scope not in ('', 'capabilities'):
                continue
            there = self.capabilities.get(name)
            if (new if there is None else
                    not specs_matcher.match(str(there), wanted)):
                return False
        return True


def _time(text: str) -> datetime.datetime:
    return timeutils.normalize_time(timeutils.parse_isotime(text))
