# SPDX-License-Identifier: Apache-2.0
"""Options of a backend that uses this driver."""

from cinder.volume import configuration
from oslo_config import cfg

MOVE_OPTS = [
    cfg.StrOpt(
        'dmclone_metadata_backend',
        default='lvm',
        choices=[
            ('lvm', 'a logical volume of dmclone_metadata_volume_group'),
            ('device', 'dmclone_metadata_device, which LVM divides'),
            ('brd', "memory, as the kernel's RAM disk"),
            ('zram', 'compressed memory'),
            ('tmpfs', 'memory that can be swapped out')],
        help='Where a clone records which blocks it has. Memory is lost when '
             'the node goes down: see dmclone_volatile_metadata. Holds for '
             'moves that begin after a change.'),
    cfg.StrOpt(
        'dmclone_metadata_volume_group',
        help='LVM volume group for metadata with the backend "lvm", for '
             'example on an NVMe disk. It must survive a power cut. Default: '
             'the group of the volumes themselves.'),
    cfg.StrOpt(
        'dmclone_metadata_device',
        help='Disk or partition for metadata with the backend "device", such '
             'as an NVMe namespace, with a name that stays: '
             '/dev/disk/by-id/... If it is blank, a volume group is made of '
             'it.'),
    cfg.BoolOpt(
        'dmclone_volatile_metadata',
        default=False,
        help='Allow the backends brd, zram and tmpfs. If a node goes down '
             'while a volume hydrates on it, nobody can tell any more which '
             'blocks were written there: ALL DATA OF THAT VOLUME IS LOST, '
             'what was synced included. Volumes that have hydrated are '
             'safe.'),
    cfg.IntOpt(
        'dmclone_metadata_memory',
        default=256, min=8,
        help='Memory in MiB that metadata may take on this node at most, '
             'with the backends brd, zram and tmpfs. A volume takes 4 MiB '
             'or less (more with a small dmclone_region_size); a move '
             'that finds no room is refused.'),
    cfg.IntOpt(
        'dmclone_region_size',
        default=0, min=0, max=1048576,
        help='Size in KiB of the regions that a clone tracks and copies; a '
             'power of two from 4 to 1048576, or 0 to choose by the size of '
             'the volume and the kind of metadata. A first write to a part '
             'of a region waits for the rest from the source; with 4 KiB '
             'hardly any does, but each changes metadata. Larger regions '
             'need less metadata and memory.'),
    cfg.IntOpt(
        'dmclone_hydration_threshold',
        default=8192, min=4,
        help='How much may be on its way from the source at a time, in KiB '
             '(hydration_threshold of dm-clone, which counts regions).'),
    cfg.IntOpt(
        'dmclone_hydration_batch_size',
        default=1024, min=4,
        help='How much of adjacent regions is copied as one, in KiB '
             '(hydration_batch_size of dm-clone, which counts regions). '
             'Keep it well below dmclone_hydration_threshold, so that one is '
             'read while another is written.'),
    cfg.IntOpt(
        'dmclone_check_interval',
        default=10, min=1,
        help='Seconds between two looks at the kernel for clones that are '
             'complete or in trouble, beside the events that the kernel '
             'sends.'),
    cfg.IntOpt(
        'dmclone_prepare_timeout',
        default=40, min=5,
        help='Seconds that a peer has to prepare a volume. It has less if '
             'less is left of rpc_response_timeout, which limits the whole '
             'request.'),
    cfg.IntOpt(
        'dmclone_source_timeout',
        default=-1, min=-1,
        help='Seconds after which a request for data that is not copied yet '
             'gets an I/O error, while the node of the source does not '
             'answer. With -1 it waits until that node is back: the guest '
             'may hang, but nothing fails. Holds for sessions that begin '
             'after a change.'),
    cfg.BoolOpt(
        'dmclone_remote_attach',
        default=False,
        help='Let a host without this backend use a volume over iSCSI '
             'where it is, instead of refusing. Such an instance has no '
             'local storage and depends on both hosts.'),
]

CONF = cfg.CONF
CONF.register_opts(MOVE_OPTS, group=configuration.SHARED_CONF_GROUP)


def list_opts():
    """Return the options for the sample file, as oslo.config wants them."""
    return [(configuration.SHARED_CONF_GROUP,
             MOVE_OPTS)]
