# SPDX-License-Identifier: Apache-2.0
"""Sources served by LIO, the kernel's iSCSI target."""

import os

from cinder import exception
from cinder import utils
from cinder.volume.targets import lio
from oslo_log import log as logging

from dmclone_driver.node import names
from dmclone_driver.node.targets import base
from dmclone_driver.privsep import lio as privileged

LOG = logging.getLogger(__name__)


class LioSource(base.SourceTarget, lio.LioAdm):
    """A read-only target of LIO, for one initiator."""

    lun = 0

    TARGETS = '/sys/kernel/config/target/iscsi'

    def names(self) -> list[str]:
        try:
            found = os.listdir(self.TARGETS)
        except OSError:
            return []
        return [name.rpartition(':')[2] for name in found]

    def serves(self, iqn: str, path: str, initiator: str, user: str) -> bool:
        # The kernel shows the user only to root.
        group = os.path.join(self.TARGETS, iqn, 'tpgt_1')
        try:
            with open(os.path.join(group, 'enable')) as enabled:
                # A target is enabled in the last step of its creation.
                return enabled.read().strip() == '1' and os.path.isdir(
                    os.path.join(group, 'acls', initiator, 'lun_0'))
        except OSError:
            return False

    def create_source(self, iqn: str, path: str, initiator: str,
                      chap: tuple[str, ...]) -> None:
        name = iqn.rpartition(':')[2]
        self.remove_source(name)
        user, password = chap
        try:
            privileged.create_read_only(
                iqn, path, initiator, user, password,
                self.configuration.target_ip_address,
                self.configuration.target_port)
        except RuntimeError as error:
            LOG.error('Creating the LIO target %(target)s failed: %(error)s',
                      {'target': names.text_of_target(iqn), 'error': error})
            raise exception.ISCSITargetCreateFailed(volume_id=name)

    def _persist_configuration(self, vol_id: str) -> None:
        """Do nothing: see :meth:`base.SourceTarget.close_after_reboot`."""

    def forget_saved(self) -> None:
        """Leave sources out of what Cinder's target driver has saved.

        It saves all targets for each connection that it makes or ends
        (_persist_configuration in cinder/volume/targets/lio.py).
        """
        try:
            if self._forget_saved():
                LOG.info('Sources are left out of the LIO targets that a boot '
                         'restores.')
        except Exception:
            LOG.exception('Leaving sources out of the LIO targets that a boot '
                          'restores failed; it is tried again.')

    @staticmethod
    @utils.synchronized('lioadm', external=True)
    def _forget_saved() -> bool:
        """Do that while no service of Cinder saves targets."""
        return privileged.forget_sources()
