# SPDX-License-Identifier: Apache-2.0
"""Delete open-iscsi's node records that a power cut left empty, as root."""

import glob
import os

from dmclone_driver import privsep

#: Where open-iscsi has its node records, depending on the distribution and
#: the version (NODE_CONFIG_DIR in its libopeniscsiusr/node.h and usr/idbm.h).
FOLDERS = ('/etc/iscsi/nodes', '/var/lib/iscsi/nodes')


@privsep.dmclone_context.entrypoint
def delete_empty(iqn: str) -> list[str]:
    """Delete the empty records of a target and return their paths.

    open-iscsi does not flush a record that it writes, so after a power cut
    the file may be empty. iscsiadm then finds no such record, but can neither
    create it ("encountered iSCSI database failure") nor delete it.

    A record is ``<target>/<portal>`` or, if the number of the portal group is
    known, ``<target>/<portal>,<number>/<interface>`` (idbm_rec_write there).

    :raises: OSError
    """
    deleted = []
    for folder in FOLDERS:
        target = os.path.join(glob.escape(folder), glob.escape(iqn))
        for path in glob.glob(target + '/*') + glob.glob(target + '/*/*'):
            if os.path.isfile(path) and not os.path.getsize(path):
                os.unlink(path)
                deleted.append(path)
    return deleted
