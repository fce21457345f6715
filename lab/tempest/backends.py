# SPDX-License-Identifier: Apache-2.0
"""The laboratory's services as Tempest needs them, and back again.

Each node gets a second backend, `lvm`, for migrations and retypes. The first
one, `dmclone`, uses the driver that is tested, with the same volume group.
"""

import contextlib
import time

from lab.common import pools
from lab import config
from lab import errors
from lab import proc
from lab import wait

# Always the same node: Cinder's scheduler remembers services that were
# stopped.
_BACKUP_NODE = 'node1'


def changes(driver, node, choices, thin=False):
    """Return a node's changes of cinder.conf.

    Cinder's LVM driver would make a thin pool by itself, and leave it behind,
    with all space of the group.

    :param thin: whether the first backend has one
    """
    return {
        'DEFAULT': {'enabled_backends': 'dmclone,lvm'},
        'dmclone': {'lvm_type': 'thin' if thin else 'default',
                    'volume_driver': config.DRIVERS[driver]},
        'lvm': dict(config.second_backend(node.ip, choices),
                    lvm_type='default')}


def must_be_usable(lab):
    """Raise LabError unless Tempest can run in a laboratory."""
    if lab.settings.bare:
        raise errors.LabError('the laboratory has no OpenStack: bring one up '
                              'without --bare')
    if lab.settings.driver != 'dmclone':
        raise errors.LabError(
            "Cinder's LVM driver may have thin pools in the volume groups of "
            'the laboratory: bring one up without --driver')
    volumes = lab.sql('SELECT COUNT(*) FROM volumes WHERE deleted = 0')
    if int(volumes[0][0]):
        raise errors.LabError(
            'the laboratory has volumes, which a change of the driver would '
            'harm: delete them first')


@contextlib.contextmanager
def prepared(lab, driver, thin=False):
    """Prepare the services; afterwards they are as they were.

    :param thin: see changes()
    """
    network = not proc.alive('networks')
    try:
        if network:
            lab.control.start('networks')
        with configured(lab, {
                node: changes(driver, node, lab.settings, thin)
                for node in lab.nodes.values()}), \
                _backup(lab.node(_BACKUP_NODE)):
            yield
    finally:
        if network:
            lab.control.stop('networks')
        if thin:
            for node in lab.nodes.values():
                pools.remove(node)


@contextlib.contextmanager
def _backup(node):
    """Run cinder-backup on a node."""
    try:
        node.start_service('cinder-backup')
        node.wait_ready()
        yield
    finally:
        node.stop('cinder-backup')


@contextlib.contextmanager
def configured(lab, wanted):
    """Run cinder-volume with other settings; afterwards it has its own.

    :param wanted: {node: its changes of cinder.conf, which may have the
            second backend}
    """
    try:
        _configure(lab, wanted)
        yield
    finally:
        errors.say('restoring the services')
        _configure(lab, {node: {} for node in lab.nodes.values()})
        _forget_second(lab)


def _configure(lab, wanted):
    """Restart cinder-volume on all nodes with changed settings."""
    since = time.time()
    for node, what in wanted.items():
        errors.say('restarting cinder-volume on %s' % node.name)
        node.configure(what)
        node.restart('cinder-volume')
    for node, what in wanted.items():
        node.wait_ready()
        if 'lvm' in what:
            wait.until(lambda node=node: lab.sql(
                "SELECT 1 FROM services WHERE NOT deleted AND "
                "host = '%s@lvm' AND updated_at > FROM_UNIXTIME(%d)" % (
                    node.name, since)), 'the second backend of ' + node.name,
                60)


def _forget_second(lab):
    """Remove the services of the second backends, which would be down."""
    for host, in lab.sql("SELECT host FROM services WHERE NOT deleted AND "
                         "host LIKE '%@lvm'"):
        lab.control.manage('cinder-manage', 'service', 'remove',
                           'cinder-volume', host)
