# SPDX-License-Identifier: Apache-2.0
"""Sources served by tgt."""

import glob
import os
import re
import textwrap

from cinder import exception
from cinder.privsep.targets import tgt as privsep_tgt
from cinder import utils
from cinder.volume.targets import tgt
from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver.node import names
from dmclone_driver.node.targets import base
from dmclone_driver.privsep import block
from dmclone_driver.privsep import command

LOG = logging.getLogger(__name__)


class TgtSource(base.SourceTarget, tgt.TgtAdm):
    """A read-only target of tgt with direct I/O, for one initiator.

    Cinder's template has none of the three. While tgt has the device open,
    a guest may still write through another one (the handle). Pages cached
    by tgt would be stale, hence direct I/O. An initiator may log in if its
    address or its name is listed. Without an address tgt-admin lists all
    (iscsi_rx_handler in tgt's usr/iscsi/iscsid.c), hence an address that no
    host has. A unit's blocks have 512 bytes, whatever the device has, unless
    tgt is told their size; tgt-admin accepts that only with a backing store.
    The serial numbers are those of Cinder's template from 26.3 on; tgt's own
    ones are the same on all nodes.
    """

    lun = 1

    NOBODY = '255.255.255.255'

    SOURCE_CONF = textwrap.dedent("""
        <target %%(name)s>
            <backing-store %%(path)s>
                block-size %d
            </backing-store>
            driver %%(driver)s
            %%(chap_auth)s
            initiator-address %s
            initiator-name %s
            readonly 1
            bsoflags direct
            scsi_sn %s
            scsi_id %s
        </target>
        """)

    # The target that tgtd creates at the next boot: all logins are refused
    # until this driver has created the device. Without any target tgtd closes
    # connections at once, and not every initiator survives that (open-iscsi's
    # issue 387).
    CLOSED_CONF = textwrap.dedent("""
        <target %s>
            initiator-address %s
        </target>
        """)

    def remove_source(self, name: str) -> None:
        """Remove a target and its file, either of which may be gone.

        Cinder's ``tgt-admin --delete --force`` fails for a target with an
        initiator's name while its session exists: it mistakes the name for
        an address. The session of a node without power continues to exist.
        """
        number, shown = self._show(self.iscsi_target_prefix + name)
        if number is not None:
            try:
                command.tgtadm(['--lld', 'iscsi', '--op', 'delete',
                                '--force', '--mode', 'target',
                                '--tid', number])
            except processutils.ProcessExecutionError as error:
                LOG.error('Removing target %(target)s failed: %(error)s',
                          {'target': names.text_of_target(name),
                           'error': error.stderr})
                raise exception.ISCSITargetRemoveFailed(volume_id=name)
        path = os.path.join(self.volumes_dir, name)
        if os.path.exists(path):
            os.unlink(path)

    @staticmethod
    def _show_all() -> str:
        """Return tgtd's description of all targets, empty without tgtd."""
        try:
            return privsep_tgt.tgtadm_show()[0]
        except processutils.ProcessExecutionError as error:
            # Without tgtd there is no target; a starting tgtd would create
            # one from its file.
            LOG.warning('tgtd does not answer: %s', error.stderr)
            return ''

    def names(self) -> list[str]:
        shown = re.findall(r'^Target \d+: (\S+)$', self._show_all(),
                           re.MULTILINE)
        files = glob.glob('dmclone-*', root_dir=self.volumes_dir)
        return sorted({iqn.rpartition(':')[2] for iqn in shown}.union(files))

    def _show(self, iqn: str) -> tuple[str, str] | tuple[None, None]:
        """Return a target's number and tgtd's description, or Nones."""
        found = re.search(r'^Target (\d+): %s$(.*?)(?=^Target |\Z)' %
                          re.escape(iqn), self._show_all(),
                          re.MULTILINE | re.DOTALL)
        return (found[1], found[2]) if found else (None, None)

    def serves(self, iqn: str, path: str, initiator: str, user: str) -> bool:
        _number, shown = self._show(iqn)
        if shown is None:
            return False
        # The access list is the last thing that tgt-admin sets.
        shown, found, admitted = shown.partition('ACL information:')
        units, found, users = shown.partition('Account information:')
        return ('Backing store path: %s\n' % path in units and
                users.split() == [user] and
                set(admitted.split()) == {self.NOBODY, initiator})

    def create_source(self, iqn: str, path: str, initiator: str,
                      chap: tuple[str, ...]) -> None:
        name = iqn.rpartition(':')[2]
        self.remove_source(name)
        self.VOLUME_CONF = self.SOURCE_CONF % (
            block.logical_block_size(path), self.NOBODY, initiator, name, name)
        self.create_iscsi_target(iqn, 0, self.lun, path, chap)

    def close_after_reboot(self, iqn: str) -> None:
        utils.robust_file_write(self.volumes_dir, iqn.rpartition(':')[2],
                                self.CLOSED_CONF % (iqn, self.NOBODY))
