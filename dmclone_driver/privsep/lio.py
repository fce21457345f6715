# SPDX-License-Identifier: Apache-2.0
"""Create targets of LIO, the kernel's iSCSI target, as root."""

from dmclone_driver import privsep


@privsep.dmclone_context.entrypoint
def create_read_only(iqn: str, path: str, initiator: str, user: str,
                     password: str, address: str, port: int) -> None:
    """Create a target with one read-only unit for one initiator.

    ``cinder-rtstool create`` opens the device for writing, which a
    read-only device refuses.

    :raises: RuntimeError with what rtslib says
    """
    import rtslib_fb as rtslib
    store = None
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
        if store is not None:
            store.delete()
        # privsep passes only built-in exceptions to its client.
        raise RuntimeError(str(error))
