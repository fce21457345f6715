# SPDX-License-Identifier: Apache-2.0
"""Activation of logical volumes whose thin pool may be broken."""

import collections.abc

from dmclone_driver.i18n import _
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import lvm
from dmclone_driver.node import thin_pools

# Seconds for which a thin pool that could not be activated is not tried again:
# for all volumes in it of one pass.
_AGAIN = 60


class PoolActivation:
    """Activates logical volumes, and remembers the pools that failed.

    LVM reads all metadata of a pool before it activates one, which may take
    minutes. That is not done for each volume in it.
    """

    def __init__(self, now: collections.abc.Callable[[], float]) -> None:
        """Keep the clock.

        :param now: returns seconds
        """
        self._now = now
        #: {name of a pool: (when it failed, why)}
        self._failed: dict[str, tuple[float, lvm.LVMError]] = {}

    def note_inactive(self, group: str, pool: str) -> None:
        """Take a pool that is not active for one that has just failed."""
        if not thin_pools.is_live(group, pool):
            self._fail(pool, lvm.LVMError(
                stderr=_('thin pool %s is not active') % pool))

    def activate(self, lv: LogicalVolume) -> None:
        """Activate a logical volume, unless its pool has just failed.

        :raises: LVMError
        """
        if lv.active:
            return
        if not lv.thin or thin_pools.is_live(lv.group, lv.pool):
            logical_volumes.activate(lv)
            return
        self._refuse_failed(lv.pool)
        try:
            logical_volumes.activate(lv, lvm.TIMEOUT_OF_POOL)
        except lvm.LVMError as error:
            if not thin_pools.is_live(lv.group, lv.pool):
                self._fail(lv.pool, error)
            raise

    def _fail(self, pool: str, why: lvm.LVMError) -> None:
        self._failed[pool] = self._now(), why

    def _refuse_failed(self, pool: str) -> None:
        if pool not in self._failed:
            return
        when, why = self._failed[pool]
        if self._now() - when < _AGAIN:
            raise lvm.LVMError(why.stdout, why.stderr, why.exit_code, why.cmd)
