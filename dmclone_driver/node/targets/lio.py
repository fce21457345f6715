# SPDX-License-Identifier: Apache-2.0
"""Sources served by the kernel's own target, LIO."""

import os

from cinder import exception
from cinder.volume.targets import lio
from oslo_log import log as logging

from dmclone_driver.node.targets import base
from dmclone_driver.privsep import lio as privileged

LOG = logging.getLogger(__name__)


class LioSource(base.SourceTarget, lio.LioAdm):
    """LIO, read-only, for one initiator."""

    lun = 0

    TARGETS = '/sys/kernel/config/target/iscsi'

    def names(self):
        try:
            found = os.listdir(self.TARGETS)
        except OSError:
            return []
        return [name.rpartition(':')[2] for name in found]

    def serves(self, iqn, path, initiator, user):
        # The kernel shows the user to root only.
        group = os.path.join(self.TARGETS, iqn, 'tpgt_1')
        try:
            with open(os.path.join(group, 'enable')) as enabled:
                # That comes last.
                return enabled.read().strip() == '1' and os.path.isdir(
                    os.path.join(group, 'acls', initiator, 'lun_0'))
        except OSError:
            return False

    def create_source(self, iqn, path, initiator, chap):
        name = iqn.rpartition(':')[2]
        self.remove_source(name)
        try:
            privileged.create_read_only(
                iqn, path, initiator, *chap,
                self.configuration.target_ip_address,
                self.configuration.target_port)
        except RuntimeError as error:
            LOG.error('LIO does not serve %(iqn)s: %(error)s',
                      {'iqn': iqn, 'error': error})
            raise exception.ISCSITargetCreateFailed(volume_id=name)

    def _persist_configuration(self, vol_id):
        """Do nothing: see :meth:`base.SourceTarget.close_after_reboot`."""
