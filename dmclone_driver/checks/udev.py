# SPDX-License-Identifier: Apache-2.0
"""Check that udev leaves the volumes of guests alone."""

import fnmatch
import re

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

NAME = 'udev rule'
RULE = '11-dm-dmclone.rules'
#: In the order of precedence: see udev(7).
FOLDERS = ('/etc/udev/rules.d', '/run/udev/rules.d',
           '/usr/local/lib/udev/rules.d', '/usr/lib/udev/rules.d',
           '/lib/udev/rules.d')
#: What the rule has to set for handles and for the disks of sources, and by
#: what it finds the logical volumes, which earlier versions left out.
PARTS = ('DM_UDEV_DISABLE_SUBSYSTEM_RULES_FLAG',
         'DM_UDEV_DISABLE_DISK_RULES_FLAG',
         'DM_UDEV_DISABLE_OTHER_RULES_FLAG',
         'UDEV_DISABLE_PERSISTENT_STORAGE_BLKID_FLAG',
         'ATTR{dm/uuid}!="LVM-?*"')
DAEMONS = ('systemd-udevd', 'udevd')

# What udev knows of each device that the rule concerns, whatever it is.
_KNOWN = ('E:DM_UDEV_DISABLE_DISK_RULES_FLAG=1',
          'E:DM_UDEV_DISABLE_OTHER_RULES_FLAG=1')
# The rule's patterns of the names of logical volumes.
_PATTERN = re.compile(r'ATTR\{dm/name\}=="(.*?)"')
# How many devices are named: after an upgrade it may be all of the node.
_NAMED = 3


def check(host: Host) -> Result:
    """Check the rule that udev reads, and the devices that exist."""
    path = next(('%s/%s' % (folder, RULE) for folder in FOLDERS
                 if host.exists('%s/%s' % (folder, RULE))), None)
    install = _('install %(rule)s of this driver into %(folder)s, and run '
                'udevadm control --reload') % {'rule': RULE,
                                               'folder': FOLDERS[0]}
    if path is None:
        # In a container the daemon and its rules are outside.
        if not any(host.processes(name) for name in DAEMONS):
            return result.unknown(
                NAME, _('no %(rule)s and no udev daemon is visible here')
                % {'rule': RULE}, _('run this command on the host itself'))
        return result.failed(
            NAME, _('udev has no %s, so the host probes and activates what '
                    'is in the volumes of guests') % RULE, install)
    lines = [line for line in (host.read(path) or '').splitlines()
             if line.strip() and not line.startswith('#')]
    if not all(any(part in line for line in lines) for part in PARTS):
        return result.failed(
            NAME, _('%s is empty, or of another version of this driver')
            % path, install)
    early = _without_flags(host, _PATTERN.findall('\n'.join(lines)))
    if early:
        return result.failed(
            NAME, _('udev has not applied the rule to %(number)d of the '
                    'devices, such as %(names)s') % {
                        'number': len(early),
                        'names': ', '.join(early[:_NAMED])},
            _('run udevadm trigger --subsystem-match=block '
              '--sysname-match="dm-*"'))
    return result.ok(NAME, path)


def _without_flags(host: Host, patterns: list[str]) -> list[str]:
    """Return the devices with data of guests that udev knows without flags.

    :param patterns: of the names of LVM's devices
    """
    found = []
    for path in host.find('/sys/block/dm-*/dm/uuid'):
        folder = path.removesuffix('/dm/uuid')
        uuid = host.read(path) or ''
        name = (host.read(folder + '/dm/name') or folder).strip()
        if not uuid.startswith('DMCLONE-') and not (
                uuid.startswith('LVM-') and
                any(fnmatch.fnmatchcase(name, each) for each in patterns)):
            continue
        number = (host.read(folder + '/dev') or '').strip()
        known = host.read('/run/udev/data/b' + number)
        if known is not None and not all(flag in known for flag in _KNOWN):
            found.append(name)
    return found
