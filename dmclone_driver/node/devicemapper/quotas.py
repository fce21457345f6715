# SPDX-License-Identifier: Apache-2.0
"""Begin copies whatever a guest has under way, where the kernel can do that.

From its version 1.1.0 on the clone target has the message ``hydrate``, with a
number of regions: so many are copied without waiting for a moment without a
request (contrib/linux). Where it is found no guest is held, see :mod:`holds`.

What is left of such a quota needs no care. It is a window at most; with the
threshold 0, and while hydration is off, none of it begins; a new message
replaces it; and it ends with the clone's table. If this process ends, there is
nothing to take back.

This module may only use the standard library, see :mod:`swap`.
"""

import errno
from typing import Protocol

from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import names as names_module

#: The target, and its first version that has the message.
TARGET, VERSION = 'clone', (1, 1, 0)

_Version = tuple[int, int, int]


class Kernel(holds.Looks, Protocol):
    """What is needed of the kernel."""

    def versions(self) -> dict[str, _Version]:
        """Return the versions of targets, see :func:`ioctl.versions`."""

    def status(self, name: str) -> str:
        """Return the status of a device, see :func:`ioctl.status`."""

    def message(self, name: str, text: str) -> None:
        """Send a message, see :func:`ioctl.message`."""


class RealKernel:
    """The kernel of this node."""

    versions = staticmethod(ioctl.versions)
    info = staticmethod(ioctl.info)
    answers = staticmethod(sysfs.answers)
    status = staticmethod(ioctl.status)
    message = staticmethod(ioctl.message)


class Quotas:
    """Gives clones quotas, and knows whether they take them.

    The version is looked up for each quota, without a process: the module can
    be another one as soon as there was no clone for a moment.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        #: The version that has refused the message. It is not from upstream,
        #: so that may have another change in its next version.
        self._refused: _Version | None = None

    def begin(self, clone: str, window: int) -> holds.Result | None:
        """Have the copies of a window begin.

        :param clone: the device
        :param window: regions
        :returns: None if the kernel cannot do that
        """
        names = names_module.parse(clone)
        try:
            version = self._kernel.versions().get(TARGET, (0, 0, 0))
            if names is None or version < VERSION or version == self._refused:
                return None
            if holds.would_wait(self._kernel, names[0]):
                # Writes of the guest would wait for these copies.
                return holds.Result(holds.REFUSED)
            # Before the quota, which begins no more than that at a time.
            self._kernel.message(clone, 'hydration_threshold %d' % window)
            if self._takes(clone, window):
                return holds.Result(holds.BEGUN)
        except (OSError, ValueError):
            # A device is gone, or was made linear.
            return holds.Result(holds.FAILED)
        self._refused = version
        return None

    def _takes(self, clone: str, window: int) -> bool:
        """Send the message; return whether the clone knows it.

        :raises: OSError, ValueError if that is no clone any longer
        """
        try:
            self._kernel.message(clone, 'hydrate %d' % window)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            status.clone(self._kernel.status(clone))
            return False
        return True
