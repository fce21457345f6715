# SPDX-License-Identifier: Apache-2.0
"""A source seen by exactly one initiator, read-only, with CHAP."""

import abc

from cinder.volume import volume_utils
from oslo_concurrency import lockutils


class SourceTarget(abc.ABC):
    """Mixed in before one of Cinder's iSCSI target drivers."""

    #: The logical unit's number, as Cinder's target driver gives it.
    lun = None

    def export(self, name, path, initiator, auth=None):
        """Let one initiator read a device.

        Can be repeated. A target that serves this already, with the same
        password, is left alone: its initiator is at work.

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

    def unexport(self, name):
        """Take a source away from its initiator; fine if it is gone.

        :raises: ISCSITargetRemoveFailed
        """
        with self.lock():
            self.remove_source(name)

    @staticmethod
    def lock():
        """Tools of both targets read and write one configuration."""
        return lockutils.lock('target', lock_file_prefix='dmclone-',
                              external=True)

    def remove_source(self, name):
        """Remove a target if it is there."""
        if self._get_target(self.iscsi_target_prefix + name):
            self.remove_iscsi_target(0, self.lun, name, name)

    @abc.abstractmethod
    def names(self):
        """Return the last parts of the iSCSI names of all targets."""

    @abc.abstractmethod
    def serves(self, iqn, path, initiator, user):
        """Whether a target is there with all that it needs.

        :param user: that the initiator logs in as, of each export another
        """

    @abc.abstractmethod
    def create_source(self, iqn, path, initiator, chap):
        """Make the target anew, for this initiator alone.

        :param chap: (user, password)
        """

    def close_after_reboot(self, iqn):
        """See to it that a target does not come back by itself.

        That would be before this service does, and so before the device: an
        initiator that logs in again would find a target without a unit,
        which is an error, and not something to wait for.
        """
