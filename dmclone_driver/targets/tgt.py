# SPDX-License-Identifier: Apache-2.0
"""Sources served by tgt."""

import os
import textwrap

from cinder.volume.targets import tgt

from dmclone_driver.targets import base


class TgtSource(base.SourceTarget, tgt.TgtAdm):
    """tgt, read-only, reading past its page cache, for one initiator.

    Cinder's template has neither of the three. tgt opens the device that a
    guest may still write through another one (the handle), so what it
    cached would be stale: hence direct I/O.
    """

    lun = 1

    SOURCE_CONF = textwrap.dedent("""
        <target %%(name)s>
            backing-store %%(path)s
            driver %%(driver)s
            %%(chap_auth)s
            initiator-name %s
            readonly 1
            bsoflags direct
            scsi_sn %%(scsi_sn)s
            scsi_id %%(scsi_id)s
        </target>
        """)

    def remove_source(self, name):
        # Also when tgtd does not know it, for example since it started
        # before the device was there: its file would bring it back.
        if os.path.exists(os.path.join(self.volumes_dir, name)):
            self.remove_iscsi_target(0, self.lun, name, name)

    def create_source(self, iqn, path, initiator, chap):
        self.remove_source(iqn.rpartition(':')[2])
        self.VOLUME_CONF = self.SOURCE_CONF % initiator
        self.create_iscsi_target(iqn, 0, self.lun, path, chap)
