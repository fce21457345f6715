# SPDX-License-Identifier: Apache-2.0
"""Checks of the enabled backends: which use this driver, or its group."""

from cinder.volume import configuration as cinder_configuration
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import importutils

from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.checks.result import Setting
from dmclone_driver.i18n import _

LOG = logging.getLogger(__name__)
CONF = cfg.CONF
CONF.import_opt('enabled_backends', 'cinder.common.config')

NAME = 'other backends'


def using(driver: type) -> list[str]:
    """Return the sections of the enabled backends that use a driver."""
    return [section for section in CONF.enabled_backends or []
            if uses(section, driver)]


def uses(section: str, driver: type) -> bool:
    """Return whether a backend's driver is a class, or derived from it."""
    name = _option(section, 'volume_driver')
    try:
        return issubclass(importutils.import_class(name), driver)
    except Exception as error:
        LOG.warning('Importing the driver of backend %(section)s failed; it '
                    'is treated as another driver: %(error)s',
                    {'section': section, 'error': error})
        return False


def _option(section: str, name: str) -> str | None:
    return cinder_configuration.Configuration(
        [cfg.StrOpt(name)], config_group=section).safe_get(name)


def check_driver(section: str, driver: type) -> Result:
    """Check that a backend exists and uses this driver."""
    if not uses(section, driver):
        return result.failed(
            'volume_driver',
            _('no backend of this name uses this driver'),
            _('name a section of cinder.conf whose volume_driver is %s')
            % '.'.join((driver.__module__, driver.__qualname__)), section)
    if section not in (CONF.enabled_backends or []):
        return result.failed(
            'volume_driver', _('cinder-volume does not start this backend'),
            _('add it to enabled_backends in [DEFAULT]'), section)
    return result.ok('volume_driver', _('enabled'), section)


def check_alone(configuration: cinder_configuration.Configuration,
                driver: type) -> Result:
    """Check that no other backend uses this driver, or the volume group.

    Two backends of this driver refuse the start of each. Another driver in
    the same group harms no volume of this one.
    """
    own, enabled = configuration.config_group, CONF.enabled_backends or []
    others = [section for section in enabled if section != own]
    for section in others:
        if uses(section, driver):
            return result.failed(
                NAME, _(
                    '[%(own)s] and [%(other)s] both use this driver, and '
                    'each would treat the copies that the other makes as '
                    'its own') % {'own': own, 'other': section},
                _('enable only one of them'), own,
                Setting('enabled_backends', ', '.join(enabled), 'DEFAULT'))
    for section in others:
        if _option(section, 'volume_group') == configuration.volume_group:
            return result.failed(
                NAME, _(
                    '[%(other)s] uses volume group %(group)s, too, and '
                    "Cinder's scheduler counts its free space twice") % {
                        'other': section,
                        'group': configuration.volume_group},
                _('give each backend a volume group of its own'), own)
    return result.ok(NAME, _('none uses this driver or volume group %s')
                     % configuration.volume_group, own)
