# SPDX-License-Identifier: Apache-2.0
"""Check that multipath leaves the disks of sources alone."""

import re

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

NAME = 'multipath'
FILES = ('/etc/multipath.conf', '/etc/multipath/conf.d/*.conf')
#: The property that the driver's udev rule sets.
PROPERTY = 'DMCLONE_SOURCE'


def check(host: Host) -> Result:
    """Check that a file of multipathd has the driver's entry."""
    if not host.processes('multipathd'):
        return result.not_applicable(NAME, _('multipathd does not run here'))
    for pattern in FILES:
        for path in host.find(pattern):
            if _excludes(host.read(path) or ''):
                return result.ok(NAME, path)
    return result.failed(
        NAME, _('multipathd may take the disks of sources, which moves then '
                'cannot use'),
        _('copy etc/multipath/conf.d/dmclone.conf of this driver to '
          '/etc/multipath/conf.d, and run multipathd reconfigure'))


def _excludes(text: str) -> bool:
    """Whether a "blacklist" section matches the property."""
    text = re.sub(r'^\s*[#!].*$', '', text, flags=re.MULTILINE)
    for section in re.findall(r'\bblacklist\s*\{([^}]*)', text):
        for pattern in re.findall(r'\bproperty\s+"([^"]*)"', section):
            if re.search(pattern, PROPERTY):
                return True
    return False
