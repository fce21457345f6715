# SPDX-License-Identifier: Apache-2.0
"""Check whether AppArmor or SELinux has denied something to the driver."""

import re

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

NAME = 'AppArmor, SELinux'
AUDIT_LOG = '/var/log/audit/audit.log'
_DENIAL = re.compile(r'apparmor="DENIED"|avc: +denied')
#: The programs that the driver uses, and the devices of guests.
_CONCERNED = re.compile(
    r'comm="(?:cinder-volume|privsep-helper|tgtd|iscsid|iscsiadm|lvm|dmsetup|'
    r'multipathd)"|dmclone|/dev/dm-')


def check(host: Host) -> Result:
    """Look for denials in the logs of the kernel and of auditd."""
    active = _active(host)
    if not active:
        return result.not_applicable(NAME, _('neither is active'))
    try:
        lines = host.kernel_log().splitlines()
        if host.processes('auditd'):
            lines += (host.read(AUDIT_LOG) or '').splitlines()
    except OSError as error:
        return result.unknown(
            NAME, _('%(active)s is active, and its log cannot be read: '
                    '%(error)s') % {'active': active, 'error': error},
            _('run this command as root'))
    denied = [line for line in lines
              if _DENIAL.search(line) and _CONCERNED.search(line)]
    if denied:
        return result.failed(
            NAME, _('%(active)s has denied something: %(line)s') % {
                'active': active, 'line': denied[-1].strip()},
            _('allow that in the profile or policy that the line names'))
    return result.ok(NAME, _('%s is active, and the logs have no denial')
                     % active)


def _active(host: Host) -> str:
    if (host.read('/sys/module/apparmor/parameters/enabled') or
            '').strip() == 'Y':
        return 'AppArmor'
    # 0 is its permissive mode.
    if (host.read('/sys/fs/selinux/enforce') or '').strip() == '1':
        return 'SELinux'
    return ''
