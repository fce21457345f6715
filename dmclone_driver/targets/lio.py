# SPDX-License-Identifier: Apache-2.0
"""Sources served by the kernel's own target, LIO."""

from cinder import exception
from cinder.volume.targets import lio
from oslo_log import log as logging

from dmclone_driver import privsep
from dmclone_driver.targets import base

LOG = logging.getLogger(__name__)


@privsep.dmclone_context.entrypoint
def create_read_only(iqn, path, initiator, user, password, address, port):
    """Make a target with one read-only unit for one initiator.

    ``cinder-rtstool create`` opens the device for writing, which a
    read-only device refuses.

    :raises: RuntimeError with what rtslib says
    """
    import rtslib_fb as rtslib
    try:
        store = rtslib.BlockStorageObject(iqn, dev=path, readonly=True)
        target = rtslib.Target(rtslib.FabricModule('iscsi'), iqn, 'create')
        group = rtslib.TPG(target, mode='create')
        group.set_attribute('authentication', '1')
        unit = rtslib.LUN(group, storage_object=store)
        access = rtslib.NodeACL(group, initiator, mode='create')
        access.chap_userid, access.chap_password = user, password
        rtslib.MappedLUN(access, unit.lun, unit.lun, write_protect=True)
        rtslib.NetworkPortal(group, address, port, mode='any')
        group.enable = True
    except rtslib.RTSLibError as error:
        # privsep brings only built-in exceptions back to its client.
        raise RuntimeError(str(error))


class LioSource(base.SourceTarget, lio.LioAdm):
    """LIO, read-only, for one initiator."""

    lun = 0

    def create_source(self, iqn, path, initiator, chap):
        name = iqn.rpartition(':')[2]
        if self._get_target(iqn):
            self.remove_iscsi_target(0, self.lun, name, name)
        try:
            create_read_only(iqn, path, initiator, *chap,
                             self.configuration.target_ip_address,
                             self.configuration.target_port)
        except RuntimeError as error:
            LOG.error('LIO does not serve %(iqn)s: %(error)s',
                      {'iqn': iqn, 'error': error})
            raise exception.ISCSITargetCreateFailed(volume_id=name)
        self._persist_configuration(name)
