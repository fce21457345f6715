# SPDX-License-Identifier: Apache-2.0
"""Create targets of LIO, the kernel's iSCSI target, as root."""

import json
import os
import tempfile
from typing import Any

from dmclone_driver import privsep

#: How the names of sources begin (``Names.target`` in node/names.py).
_SOURCE = 'dmclone-'


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


def without_sources(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a saved configuration of LIO without this driver's sources.

    :param saved: as ``RTSRoot.dump`` in rtslib's root.py returns it
    """
    left = dict(saved)
    for kind, name in (('targets', 'wwn'), ('storage_objects', 'name')):
        if kind in saved:
            left[kind] = [
                each for each in saved[kind] if not each.get(name, '')
                .rpartition(':')[2].startswith(_SOURCE)]
    return left


@privsep.dmclone_context.entrypoint
def forget_sources() -> bool:
    """Leave the sources out of what a boot restores.

    :returns: whether they were in it
    :raises: OSError, ValueError
    """
    import rtslib_fb as rtslib
    path = rtslib.root.default_save_file
    try:
        with open(path) as stream:
            saved = json.load(stream)
    except FileNotFoundError:
        return False
    left = without_sources(saved)
    if left == saved:
        return False
    # Its mode is 0600: there are passwords in it.
    with tempfile.NamedTemporaryFile(
            'w', dir=os.path.dirname(path), delete=False) as stream:
        try:
            json.dump(left, stream, sort_keys=True, indent=2)
            stream.flush()
            os.fsync(stream.fileno())
            os.replace(stream.name, path)
        except Exception:
            os.unlink(stream.name)
            raise
    return True
