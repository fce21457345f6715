# SPDX-License-Identifier: Apache-2.0
"""Which devices of a volume there are, by their roles, and their removal."""

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper.status import Device
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names


class Roles:
    """The devices of one volume on this node.

    :ivar names: :class:`dmclone_driver.node.names.Names` of its logical volume
    """

    def __init__(self, names: Names) -> None:
        self.names = names

    def exists(self) -> bool:
        """Return whether a volume has its handle on this node."""
        return self._is_live(HANDLE)

    def _present(self, *roles: str) -> dict[str, Device]:
        """Return the volume's devices of some roles by name, at once."""
        return dmsetup.devices(*map(self.names.of, roles))

    def _is_live(self, role: str) -> bool:
        device = dmsetup.device(self.names.of(role))
        return device is not None and device.live

    def is_clone(self) -> bool:
        """Return whether part of a volume's data may be elsewhere."""
        return self._is_live(CLONE)

    def is_open(self) -> bool:
        """Return whether the handle is open, other than by its own export."""
        present = self._present(HANDLE, EXPORT)
        handle = present.get(self.names.of(HANDLE))
        exported = self.names.of(EXPORT) in present
        return handle is not None and handle.open_count > exported

    def remove(self, *roles: str) -> None:
        """Remove devices in the order of the roles; skip those that are gone.

        :raises: ProcessExecutionError if one is in use
        """
        present = self._present(*roles)
        for role in roles:
            device = present.get(self.names.of(role))
            if device is not None:
                dmsetup.remove(device.name, device.suspended)
