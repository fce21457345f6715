# SPDX-License-Identifier: Apache-2.0
"""Checks of options that do not depend on the node."""

import collections.abc

from cinder.volume import configuration as cinder_configuration
from oslo_config import cfg

from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.checks.result import Setting
from dmclone_driver.i18n import _
from dmclone_driver.node.metadata import sizing

CONF = cfg.CONF
CONF.import_opt('volume_name_template', 'cinder.db.api')

NAME_TEMPLATE = 'volume-%s'
ISCSI_TARGETS = {'tgtadm': 'dmclone_driver.node.targets.tgt.TgtSource',
                 'lioadm': 'dmclone_driver.node.targets.lio.LioSource'}


def check(configuration: cinder_configuration.Configuration
          ) -> collections.abc.Iterator[Result]:
    """Yield one result per option; a wrong one refuses the start."""
    def judge(option: str, right: bool, text: str, remedy: str) -> Result:
        value = configuration.safe_get(option)
        section = configuration.config_group
        if right:
            return result.ok(option, str(value), section)
        return result.failed(option, text, remedy, section,
                             Setting(option, value, section))

    yield judge('target_helper',
                configuration.target_helper in ISCSI_TARGETS,
                _('this driver supports tgtadm and lioadm'),
                _('set it to one of them'))
    yield judge('lvm_mirrors', not configuration.lvm_mirrors,
                _('this driver does not support mirrors of LVM'),
                _('set it to 0, and mirror the disks below the volume group'))
    size = configuration.dmclone_region_size
    yield judge('dmclone_region_size', not size or sizing.valid_region(size),
                _('the size has to be a power of two from 4 to 1048576 KiB'),
                _('set it to one, or to 0 for the default'))


def check_template() -> Result:
    """Check the names of logical volumes; others refuse the start."""
    template = CONF.volume_name_template
    if template == NAME_TEMPLATE:
        return result.ok('volume_name_template', template)
    return result.failed(
        'volume_name_template',
        _('the driver finds logical volumes by their default names'),
        _('set it to %s, the default') % NAME_TEMPLATE,
        setting=Setting('volume_name_template', template, 'DEFAULT'))


def check_cluster(cluster: str | None) -> Result:
    """Check that there is no cluster of services.

    Cinder itself refuses that before it calls the driver
    (VolumeManager.__init__ in cinder/volume/manager.py).
    """
    if not cluster:
        return result.ok('cluster', _('not set'))
    return result.failed(
        'cluster',
        _('a volume has one home, and only that node can serve it; Cinder '
          'does not start this driver in a cluster'),
        _('remove the option'),
        setting=Setting('cluster', cluster, 'DEFAULT'))
