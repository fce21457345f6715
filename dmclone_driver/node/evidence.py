# SPDX-License-Identifier: Apache-2.0
"""What the kernel proves about a clone: whether it was written, or is sick."""

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.roles import Roles
from dmclone_driver.privsep import block


class Evidence(Roles):
    """What has happened to the clone that a volume is, or has been."""

    def never_written(self) -> bool:
        """Return whether it is proven that a passive clone was not written.

        If so, the handle refuses writes from then on. A missing handle was
        never written, since the gate of a passive clone is only opened after
        the switchover.
        """
        device = dmsetup.device(self.names.of(HANDLE))
        if not device or not device.live:
            return True
        if device.open_count:
            # Its user's writes must not be refused: it is not proven that the
            # volume's home is another node.
            return False
        block.set_read_only(self.names.path(), True)
        status = dmsetup.clone(self.names.of(CLONE))
        device = dmsetup.device(self.names.of(HANDLE))
        # It was there, and the caller holds the volume's lock.
        assert device is not None
        if (status is not None and status.healthy and not status.written and
                not device.open_count):
            return True
        self.allow_writes()
        return False

    def has_nothing_own(self) -> bool:
        """Return whether it is proven that a clone shows only its source.

        No region is written, copied, or about to be. Valid of a sealed clone:
        it can't be written from then on.
        """
        if self.is_open():
            return False
        clone = self.names.of(CLONE)
        status = dmsetup.clones(clone).get(clone)
        return (status is not None and status.healthy and
                not status.hydrated and not status.hydrating)

    def allow_writes(self) -> None:
        """Make a handle writable again."""
        if self.exists():
            block.set_read_only(self.names.path(), False)

    def maybe_written(self) -> bool:
        """Return whether a write to a passive clone is done or pending.

        The status is read twice: the kernel briefly counts its own idle
        checks, too (do_hydration in drivers/md/dm-clone-target.c).
        """
        if not self.exists():
            return False
        for _attempt in range(2):
            status = dmsetup.clone(self.names.of(CLONE))
            if status is None or not status.written:
                return False
        return True

    def never_acknowledged(self) -> bool:
        """Return whether it is proven that no write was acknowledged.

        True if its gate was never open: a write may wait there, but the disk
        has completed none, and no region was copied.
        """
        if not self.exists():
            return True
        status = dmsetup.clone(self.names.of(CLONE))
        if status is None or status.hydrated or status.hydration:
            return False
        return status.healthy or sysfs.is_suspended(self.names.of(GATE))

    def is_sick(self) -> bool:
        """Return whether a volume is a clone whose metadata has failed."""
        clone = self.names.of(CLONE)
        status = dmsetup.clones(clone).get(clone)
        return status is not None and not status.healthy
