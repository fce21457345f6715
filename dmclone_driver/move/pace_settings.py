# SPDX-License-Identifier: Apache-2.0
"""The limits of a node's copies: as configured, or as an operator set them.

What an operator has set outlives a restart of the service. It is in a file
below state_path of Cinder, and not in the database: the node has to keep its
pace while that is away.
"""

# Cinder's classes are only named here.
from __future__ import annotations

import collections.abc
import json
import math
import os
import time
from typing import Any
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import fileutils
from oslo_utils import units

from dmclone_driver.move.pace import Bandwidth
from dmclone_driver.move.pace import Limits
from dmclone_driver.move.pace import Order
from dmclone_driver.node import links

if TYPE_CHECKING:
    from cinder.volume import configuration as cinder_configuration

LOG = logging.getLogger(__name__)

CONF = cfg.CONF

# The key of what is no limit: name ids of the copies that come first.
_FIRST = 'first'

# Seconds for which the speed of the link is believed: a bond may have lost a
# part of itself since.
_LINK = 60


class PaceSettings:
    """The present limits of a backend."""

    def __init__(self, host: str,
                 configuration: cinder_configuration.Configuration,
                 clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        self._path = os.path.join(CONF.state_path,
                                  'dmclone-pace-%s.json' % host)
        self._address = configuration.target_ip_address
        self._clock = clock
        self._link: int | None = None
        self._measured = -math.inf
        #: Those of the configuration.
        self.configured = Limits(
            configuration.dmclone_copies_at_once,
            Bandwidth.parse(configuration.dmclone_bandwidth_in),
            Bandwidth.parse(configuration.dmclone_bandwidth_out),
            configuration.dmclone_hydration_min_rate,
            Order(configuration.dmclone_copy_order))
        #: The present ones.
        self.limits = self.configured
        #: Name ids of the copies that an operator wants first, in this order.
        self.first: tuple[str, ...] = ()
        self._load()

    @property
    def changed(self) -> list[str]:
        """The names of the limits that an operator has set."""
        configured = self.configured.as_dict()
        return [name for name, value in self.limits.as_dict().items()
                if value != configured[name]]

    @property
    def link(self) -> int | None:
        """The speed of the link in bytes per second, None if unknown."""
        if self._clock() - self._measured >= _LINK:
            self._link = links.speed(self._address)
            self._measured = self._clock()
        return self._link

    @property
    def bandwidth_in(self) -> float | None:
        """What all copies to this node may use, None for no limit."""
        return self._of(self.limits.bandwidth_in)

    @property
    def bandwidth_out(self) -> float | None:
        """What all copies from this node may use, None for no limit."""
        return self._of(self.limits.bandwidth_out)

    @property
    def min_rate(self) -> int:
        """Bytes per second that a copy beside a busy guest gets at least."""
        return self.limits.min_rate * units.Mi

    def _of(self, bandwidth: Bandwidth) -> float | None:
        return bandwidth.of(self.link if bandwidth.percent else None)

    def change(self, changes: collections.abc.Mapping[str, Any],
               first: tuple[str, ...]) -> None:
        """Change limits, now and for later starts of the service.

        :param changes: some of the values of :meth:`Limits.as_dict`; None for
            the configured one
        :param first: see the attribute
        :raises: ValueError, OSError; then nothing is changed
        """
        configured = self.configured.as_dict()
        plain = {name: configured[name] if value is None else value
                 for name, value in dict(self.limits.as_dict(),
                                         **changes).items()}
        limits = Limits.parse(plain)
        self._store({name: value for name, value in limits.as_dict().items()
                     if value != configured[name]}, first)
        self.limits, self.first = limits, first

    def _store(self, set_ones: dict[str, Any], first: tuple[str, ...]) -> None:
        text = json.dumps(dict(set_ones, **{_FIRST: first}), indent=1)
        temporary = fileutils.write_to_tempfile(
            text.encode(), path=os.path.dirname(self._path))
        # A process that is killed here leaves the old limits, and a file.
        os.replace(temporary, self._path)

    def _load(self) -> None:
        try:
            with open(self._path, encoding='utf-8') as file:
                plain = json.load(file)
            first = tuple(map(str, plain.pop(_FIRST)))
            self.limits = Limits.parse(dict(self.configured.as_dict(),
                                            **plain))
            self.first = first
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, KeyError,
                AttributeError) as error:
            LOG.warning('The limits of copies that an operator has set are '
                        'lost, and those of the configuration are used: '
                        '%(path)s cannot be read: %(error)s',
                        {'path': self._path, 'error': error})
