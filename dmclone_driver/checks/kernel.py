# SPDX-License-Identifier: Apache-2.0
"""Checks of the kernel: its version, device-mapper targets and modules."""

import collections.abc
import re

from cinder.volume import configuration as cinder_configuration
from oslo_concurrency import processutils

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.checks.result import Setting
from dmclone_driver import exception
from dmclone_driver.i18n import _

#: The first Linux that tells a device that was set read-only from one with a
#: read-only table ("block: add a hard-readonly flag to struct gendisk"). In
#: older ones a sealed handle becomes writable when its table changes.
OLDEST_KERNEL = (5, 12)
#: The device-mapper's targets, and the modules that have them. LVM and the
#: driver take snapshots with the last ones.
DM_TARGETS = {'linear': 'dm-mod', 'clone': 'dm-clone', 'zero': 'dm-zero',
              'snapshot': 'dm-snapshot', 'snapshot-origin': 'dm-snapshot'}
#: The module with which guests are held for copies, see node/anchor.py.
DELAY = 'dm_delay'
#: The module of thin volumes, see storage.check_pool().
THIN = 'dm_thin_pool'
#: The modules that other options need: {option: {value: modules}}.
MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    'target_helper': {
        'lioadm': ('target_core_mod', 'target_core_iblock',
                   'iscsi_target_mod')},
    'dmclone_metadata_backend': {'brd': ('brd',), 'zram': ('zram',),
                                 'tmpfs': ('loop',)}}


def _setting(configuration: cinder_configuration.Configuration) -> Setting:
    return Setting('volume_driver', configuration.volume_driver,
                   configuration.config_group)


def check_version(configuration: cinder_configuration.Configuration,
                  host: Host) -> Result:
    """Check that the kernel is recent enough."""
    release = host.release()
    found = re.match(r'(\d+)\.(\d+)', release)
    if found and tuple(map(int, found.groups())) < OLDEST_KERNEL:
        return result.failed(
            'kernel',
            _('this node runs Linux %s, where a source becomes writable when '
              'its table changes') % release,
            _('boot Linux %s or later') % '%d.%d' % OLDEST_KERNEL,
            setting=_setting(configuration))
    return result.ok('kernel', 'Linux ' + release)


def check_targets(configuration: cinder_configuration.Configuration,
                  host: Host,
                  load: collections.abc.Callable[[str], None]) -> Result:
    """Check that the kernel has the device-mapper targets.

    :param load: function that loads a module, or only looks for it
    """
    module = DM_TARGETS['linear']
    try:
        loaded = host.targets()
        for target, module in DM_TARGETS.items():
            if target not in loaded:
                load(module)
    except (processutils.ProcessExecutionError, OSError) as error:
        return result.failed(
            'device-mapper targets',
            _('this kernel has no %(module)s (%(error)s)') % {
                'module': module, 'error': exception.text_of(error)},
            _('boot Linux %s or later with DM_CLONE, DM_ZERO and '
              'DM_SNAPSHOT') % '%d.%d' % OLDEST_KERNEL,
            setting=_setting(configuration))
    return result.ok('device-mapper targets', ', '.join(DM_TARGETS))


def check_modules(configuration: cinder_configuration.Configuration,
                  host: Host) -> Result:
    """Check that the kernel has the modules that the options need."""
    wanted = ['iscsi_tcp']
    for option, modules in MODULES.items():
        wanted += modules.get(configuration.safe_get(option), ())
    if configuration.safe_get('dmclone_hydration_min_rate'):
        wanted.append(DELAY)
    missing = [module for module in wanted if not has(host, module)]
    section = configuration.config_group
    if missing:
        return result.failed(
            'kernel modules', _('this kernel has no %s') % ', '.join(missing),
            remedy(_('choose another target_helper or '
                     'dmclone_metadata_backend, or '
                     'dmclone_hydration_min_rate = 0')), section)
    return result.ok('kernel modules', ', '.join(wanted), section)


def remedy(otherwise: str) -> str:
    """Return what to do about a kernel without some modules.

    :param otherwise: what to do if it is to stay without them
    """
    return _('install the package with the rest of its modules '
             '(linux-modules-extra on Ubuntu), or %s') % otherwise


def has(host: Host, module: str) -> bool:
    """Return whether the kernel has a module, loaded or not."""
    if host.exists('/sys/module/' + module):
        return True
    try:
        host.find_module(module)
    except (processutils.ProcessExecutionError, OSError):
        return False
    return True
