# SPDX-License-Identifier: Apache-2.0
"""What udev does not look for on the logical volumes of guests."""

import os
import struct

from dmclone_driver.checks import host
from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks import udev
from dmclone_driver.node import logical_volumes
from lab.common import clones
from tests.functional import test_thin

LABEL = 'dmclone-test'
BY_LABEL = '/dev/disk/by-label/' + LABEL

# Where a RAID has its superblock, of version 1.2, in sectors.
_PLACE = 8


def _superblock():
    """Return the superblock of a RAID, as far as libblkid reads it.

    See struct mdp_superblock_1 in the kernel's include/uapi/linux/raid/md_p.h.
    """
    # The magic, the version, and where the superblock is.
    fields = {0: 0xa92b4efc, 4: 1, 144: _PLACE}
    block = bytearray(4096)
    for place, value in fields.items():
        struct.pack_into('<I', block, place, value)
    struct.pack_into('<I', block, 216, sum(fields.values()))
    return bytes(block)


class UdevTest(test_thin.ThinPoolTest):
    """Signatures that a guest has written, and the rule's flags.

    Nodes have no mdadm: it acts on what udev has found, ID_FS_TYPE.
    """

    @staticmethod
    def known(path):
        """Return what udev knows of a device, when it has handled all."""
        clones.run('udevadm', 'settle')
        lines = clones.run('udevadm', 'info', '--query=property', path)
        return dict(line.split('=', 1) for line in lines.splitlines())

    @staticmethod
    def trigger():
        """Do what the check and the page about upgrades say."""
        clones.run('udevadm', 'trigger', '--subsystem-match=block',
                   '--sysname-match=dm-*')

    def assertUnread(self, lv):
        """Check that udev has read nothing, and has made LVM's links."""
        known = self.known(lv.path)
        self.assertEqual([], [name for name in known
                              if name.startswith(('ID_FS_', 'ID_PART_'))])
        self.assertEqual(['1', '1'], [
            known.get('DM_UDEV_DISABLE_%s_RULES_FLAG' % kind)
            for kind in ('DISK', 'OTHER')])
        links = known['DEVLINKS'].split()
        self.assertIn(lv.path, links)
        self.assertEqual([], [link for link in links
                              if link.startswith('/dev/disk/')])

    def stranger(self):
        """Create a logical volume that no guest has, with a file system."""
        logical_volumes.create(clones.GROUP, 'stranger', test_thin.SIZE)
        lv = self.find('stranger')
        self.addCleanup(clones.run, 'lvremove', '--yes', lv.full_name)
        # Programs that udev starts would have it open.
        self.addCleanup(clones.run, 'udevadm', 'settle')
        clones.run('mkfs.ext4', '-q', '-L', LABEL, lv.path)
        return lv

    def test_other_logical_volume(self):
        """The host's own ones are read, so that the other tests can fail."""
        lv = self.stranger()
        self.trigger()
        self.assertEqual(LABEL, self.known(lv.path)['ID_FS_LABEL'])
        self.assertTrue(os.path.exists(BY_LABEL))

    def test_file_system(self):
        _names, lv = self.logical_volume()
        self.assertUnread(lv)
        # It closes the device after it has written to it.
        clones.run('mkfs.ext4', '-q', '-L', LABEL, lv.path)
        self.assertUnread(lv)
        self.trigger()
        self.assertUnread(lv)
        # As at a boot.
        clones.run('lvchange', '-an', lv.full_name)
        clones.run('lvchange', '-ay', lv.full_name)
        self.assertUnread(lv)
        self.assertFalse(os.path.exists(BY_LABEL))

    def test_raid(self):
        """LVM wipes no signature of a thin snapshot: it appears with it."""
        names, lv = self.volume()
        clones.write(names.path(), 512 * _PLACE, _superblock())
        taken = self.snapshot(lv)
        self.assertIn('linux_raid_member', clones.run(
            'blkid', '--probe', taken.path))
        for each in lv, taken:
            self.assertUnread(each)
        self.trigger()
        for each in lv, taken:
            self.assertUnread(each)

    def test_device_that_is_older_than_the_rule(self):
        """An upgrade, as its page says; the check tells what is missing."""
        node = host.Host()
        rule = next(path for path in ('%s/%s' % (folder, udev.RULE)
                                      for folder in udev.FOLDERS)
                    if node.exists(path))
        hidden = rule + '.away'
        os.rename(rule, hidden)
        try:
            clones.run('udevadm', 'control', '--reload')
            _names, lv = self.logical_volume()
            clones.run('mkfs.ext4', '-q', '-L', LABEL, lv.path)
            self.trigger()
            self.assertEqual(LABEL, self.known(lv.path)['ID_FS_LABEL'])
        finally:
            os.rename(hidden, rule)
            clones.run('udevadm', 'control', '--reload')
        self.assertEqual(Outcome.FAILED, udev.check(node).outcome)
        self.trigger()
        self.assertUnread(lv)
        self.assertFalse(os.path.exists(BY_LABEL))
        self.assertEqual(Outcome.OK, udev.check(node).outcome)
