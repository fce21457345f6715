# SPDX-License-Identifier: Apache-2.0
"""Sources served by the kernel's own target, LIO."""

from cinder import exception
from cinder.volume.targets import lio
from oslo_log import log as logging

from dmclone_driver.privsep import lio as privileged
from dmclone_driver.targets import base

LOG = logging.getLogger(__name__)


class LioSource(base.SourceTarget, lio.LioAdm):
    """LIO, read-only, for one initiator."""

    lun = 0

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
        self._persist_configuration(name)
