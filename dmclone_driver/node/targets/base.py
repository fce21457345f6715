# SPDX-License-Identifier: Apache-2.0
"""A source exported read-only to exactly one initiator, with CHAP."""

import abc
import collections.abc
import contextlib
from typing import Any

from cinder.volume import configuration as cinder_configuration
from cinder.volume import volume_utils
from oslo_concurrency import lockutils


class SourceTarget(abc.ABC):
    """Mixin in front of one of Cinder's iSCSI target drivers."""

    #: The logical unit's number, as Cinder's target driver assigns it.
    lun: int

    # Of Cinder's target driver.
    configuration: cinder_configuration.Configuration
    iscsi_target_prefix: str
    _get_target: collections.abc.Callable[..., Any]
    _iscsi_authentication: collections.abc.Callable[..., str]
    _iscsi_location: collections.abc.Callable[..., str]
    remove_iscsi_target: collections.abc.Callable[..., None]

    def export(self, name: str, path: str, initiator: str,
               auth: str | None = None) -> tuple[str, str]:
        """Export a device read-only to one initiator.

        Can be repeated. A target that serves this device already, with the
        same password, is not changed: its initiator is using it.

        :param name: the last part of the iSCSI name
        :param auth: ``CHAP user password`` of an earlier export, if any
        :returns: (location, auth), as Cinder keeps them in a volume's
            provider_location and provider_auth
        :raises: ISCSITargetCreateFailed
        """
        chap = tuple(auth.split()[1:]) if auth else (
            volume_utils.generate_username(),
            volume_utils.generate_password())
        iqn = self.iscsi_target_prefix + name
        with self.lock():
            if not (auth and self.serves(iqn, path, initiator, chap[0])):
                self.create_source(iqn, path, initiator, chap)
            self.close_after_reboot(iqn)
        location = self._iscsi_location(
            self.configuration.target_ip_address, 1, iqn, self.lun)
        return location, self._iscsi_authentication('CHAP', *chap)

    def unexport(self, name: str) -> None:
        """Remove the export of a source; succeed if it is gone.

        :raises: ISCSITargetRemoveFailed
        """
        with self.lock():
            self.remove_source(name)

    @staticmethod
    def lock() -> contextlib.AbstractContextManager[Any]:
        """Return the lock of the target tools' shared configuration."""
        return lockutils.lock('target', lock_file_prefix='dmclone-',
                              external=True)

    def remove_source(self, name: str) -> None:
        """Remove a target if it exists."""
        if self._get_target(self.iscsi_target_prefix + name):
            self.remove_iscsi_target(0, self.lun, name, name)

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Return the last parts of the iSCSI names of all targets."""

    @abc.abstractmethod
    def serves(self, iqn: str, path: str, initiator: str, user: str) -> bool:
        """Return whether a target exists and is set up completely.

        :param user: of the initiator's login; each export has its own
        """

    @abc.abstractmethod
    def create_source(self, iqn: str, path: str, initiator: str,
                      chap: tuple[str, ...]) -> None:
        """Create the target, for this initiator only; replace an old one.

        :param chap: (user, password)
        """

    def close_after_reboot(self, iqn: str) -> None:
        """Prevent a boot from restoring the target.

        The target would exist before this service starts, and so before its
        device. An initiator that logs in again would find a target without
        a unit. It treats that as an error and does not wait.
        """

    def forget_saved(self) -> None:
        """Prevent a boot from restoring sources that others have saved.

        For a target whose configuration is saved as a whole.
        """
