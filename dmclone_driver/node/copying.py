# SPDX-License-Identifier: Apache-2.0
"""The copies of a clone: begin, pause and end them."""

import time

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node.roles import Roles

# How often to check whether copies have ended, half a second apart.
STOP_ATTEMPTS = 10


class Copying(Roles):
    """The copies of the clone that a volume is."""

    def start_hydration(self, paced: bool = False) -> None:
        """Start hydration; only when writes to the source are impossible.

        Not while regions are marked: dm-clone would mark one that is being
        copied, and the copy overwrite what a guest writes there later. The
        process that marks may have outlived its caller.

        :param paced: copy one region at a time until the pacemaker sets the
            window, see pacing
        :raises: ProcessExecutionError, also if the handle stays locked
        """
        dmsetup.message_alone(self.names.of(HANDLE), self.names.of(CLONE), *(
            ['hydration_threshold 1'] if paced else []), 'enable_hydration')

    def pause_hydration(self) -> None:
        """Begin no more copies; those under way end by themselves."""
        dmsetup.message(self.names.of(CLONE), 'disable_hydration')

    def copy_one_by_one(self) -> None:
        """Copy each region separately.

        A batch of adjacent regions fails as a whole if one cannot be read.
        """
        dmsetup.message(self.names.of(CLONE), 'hydration_batch_size 1')

    def copy_in_batches(self, size: int) -> None:
        """Undo :func:`copy_one_by_one`.

        :param size: of a batch, in regions
        """
        dmsetup.message(self.names.of(CLONE),
                        'hydration_batch_size %d' % size)

    def stop_hydration(self) -> bool:
        """Stop hydration, and wait some time for copies under way.

        :returns: whether all copies have ended
        """
        self.pause_hydration()
        for _attempt in range(STOP_ATTEMPTS):
            if not self._copying():
                return True
            time.sleep(0.5)
        return False

    def _copying(self) -> bool:
        """Return whether copies of a clone are under way."""
        status = dmsetup.clone(self.names.of(CLONE))
        # Without the volume's lock it may just have become linear.
        return status is not None and bool(status.hydrating)

    def fail_without_source(self) -> bool:
        """Fail copies that wait for a source without a session.

        The source was never connected, or its session has just been ended.

        :returns: whether all copies have ended
        """
        for _attempt in range(STOP_ATTEMPTS):
            if sysfs.is_suspended(self.names.of(SOURCE)):
                dmsetup.resume(self.names.of(SOURCE))
            if not self._copying():
                return True
            time.sleep(0.5)
        return False
