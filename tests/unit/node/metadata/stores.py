# SPDX-License-Identifier: Apache-2.0
"""The configuration of metadata stores on simulated machines."""

import types
from unittest import mock

from cinder import exception as cinder_exception

from tests.unit.fakes import storage


def configuration(**options):
    """Return a backend's configuration."""
    made = types.SimpleNamespace(**dict(
        volume_group='volumes', config_group='here',
        dmclone_metadata_volume_group=None, dmclone_metadata_device=None,
        dmclone_volatile_metadata=True, dmclone_metadata_memory=64,
        lvm_conf_file='/etc/cinder/lvm.conf', lvm_suppress_fd_warnings=False)
        | options)
    made.safe_get = lambda name: getattr(made, name, None)
    return made


def use_groups(test):
    """Make Cinder's volume group object use a test's simulated LVM."""
    def group(name, *args, **kwargs):
        if name not in test.lvm.groups:
            raise cinder_exception.VolumeGroupNotFound(vg_name=name)
        return storage.Group(test.lvm, name)

    test.patch('cinder.brick.local_dev.lvm.LVM', new=mock.Mock(
        side_effect=group, LVM_CMD_PREFIX=['env', 'LC_ALL=C']))
