# SPDX-License-Identifier: Apache-2.0
"""Volumes of both drivers: Cinder's LVM driver is the second backend."""

import contextlib
import datetime

from lab.bench import remote_disk
from lab.bench import snapshots
from lab.common import user as user_module
from lab import config
from lab.tempest import backends
from lab import wait

#: {volume type and backend: its name in results}
KINDS = {'lvm': 'LVM', 'dmclone': 'dmclone'}
#: How often a node has the space of a volume at a time: for itself, for a
#: snapshot with room for all of it, and for a volume from that.
AT_A_TIME = 3
#: GiB for what is there besides, such as the cached image.
_BESIDES = 2


def fitting(sizes, free):
    """Return sizes of volumes, the largest that fits instead of larger ones.

    :param sizes: GiB
    :param free: GiB of the volume group
    """
    # Records of snapshots, and metadata of clones, take less than a hundredth.
    most = int((free - _BESIDES) * 0.99 / AT_A_TIME)
    return sorted({min(size, most) for size in sizes})


def changes(node, settings, project_id, user_id):
    """Return a node's changes of cinder.conf.

    :param project_id: of the user who gets the cached images
    """
    cached = {'image_volume_cache_enabled': 'True'}
    return config.merged(backends.changes('dmclone', node, settings), {
        'DEFAULT': {'cinder_internal_tenant_project_id': project_id,
                    'cinder_internal_tenant_user_id': user_id,
                    # Seconds until the scheduler knows of free space.
                    'backend_stats_polling_interval': '10'},
        **dict.fromkeys(KINDS, cached)})


def has_room(pools, name, needed, unreported, asked):
    """Return whether Cinder's scheduler knows of room in a pool.

    :param pools: the API's answer, with what the nodes have last reported
    :param needed: GiB
    :param unreported: GiB that may have been taken since then
    :param asked: a report that is newer than this knows everything
    """
    for pool in pools:
        found = pool['capabilities']
        if pool['name'] == name:
            free = float(found['free_capacity_gb'])
            reported = datetime.datetime.fromisoformat(
                found['timestamp']).replace(tzinfo=datetime.UTC)
            return free >= needed + (0 if reported > asked else unreported)
    return False


class Beside(snapshots.WithSnapshots):
    """Volume operations with both drivers."""

    def __init__(self):
        super().__init__()
        backends.must_be_usable(self.lab)

    def fitting(self, node, sizes):
        """Return the sizes of volumes that fit on a node: see fitting()."""
        return fitting(sizes, self.free(node))

    @contextlib.contextmanager
    def beside(self):
        """Have each node run both drivers, and cache images."""
        cloud = self.user.cloud
        with backends.configured(self.lab, {node: changes(
                node, self.lab.settings, cloud.current_project_id,
                cloud.current_user_id) for node in self.lab.nodes.values()}):
            yield

    def wait_room(self, node, kind, size, times):
        """Wait until Cinder's scheduler knows of room for volumes.

        It does not know at once that space is free again.

        :param size: GiB
        :param times: how often that is needed
        """
        name = '{0}@{1}#{1}'.format(node.name, kind)
        asked = datetime.datetime.now(datetime.UTC)
        wait.until(lambda: has_room(self.user.as_admin(
            'GET', '/scheduler-stats/get_pools?detail=True')['pools'],
            name, times * size, AT_A_TIME * size, asked),
            'room for %d GiB on %s' % (times * size, name), 180)

    @contextlib.contextmanager
    def attached(self, volume_id, node):
        """Attach a volume of either driver; yields its path."""
        attachment = self.user.attach(volume_id, node)
        info = attachment['connection_info']
        try:
            if info['driver_volume_type'] == 'iscsi':
                with remote_disk.volume(node, info) as path:
                    yield path
            else:
                yield user_module.path(attachment)
        finally:
            self.user.detach(attachment['id'])
            self.user.settled(volume_id, 'available')
