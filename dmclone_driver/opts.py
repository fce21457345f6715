# SPDX-License-Identifier: Apache-2.0
"""Options of a backend that uses this driver."""

from cinder.volume import configuration
from oslo_config import cfg

# What the parser in move/pace.py takes.
_BANDWIDTH = (r'^(none|(100|[1-9]\d?)%|\d+(\.\d+)?[kMGT]?i?(B|b|bit))$')

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
        help='Where a clone records which blocks it has. Metadata in memory '
             'is lost when the node goes down: see '
             'dmclone_volatile_metadata. A change applies to moves that '
             'begin after it.'),
    cfg.StrOpt(
        'dmclone_metadata_volume_group',
        help='LVM volume group for metadata with the backend "lvm", for '
             'example on an NVMe disk. It must survive a power cut. Default: '
             'the volume group of the volumes.'),
    cfg.StrOpt(
        'dmclone_metadata_device',
        help='Disk or partition for metadata with the backend "device", such '
             'as an NVMe namespace, by its persistent name: '
             '/dev/disk/by-id/... If the device is blank, the driver creates '
             'a volume group on it.'),
    cfg.BoolOpt(
        'dmclone_volatile_metadata',
        default=False,
        help='Allow the backends brd, zram and tmpfs. If a node goes down '
             'while a volume hydrates on it, the record of which blocks were '
             'written there is gone: ALL DATA OF THAT VOLUME IS LOST, synced '
             'writes included. Volumes that have hydrated are safe.'),
    cfg.IntOpt(
        'dmclone_metadata_memory',
        default=256, min=8,
        help='Maximum memory in MiB for metadata on this node, with the '
             'backends brd, zram and tmpfs. A volume takes 4 MiB or less '
             '(more with a small dmclone_region_size); a move whose metadata '
             'does not fit is refused.'),
    cfg.IntOpt(
        'dmclone_region_size',
        default=0, min=0, max=1048576,
        help='Size in KiB of the regions that a clone tracks and copies; a '
             'power of two from 4 to 1048576, or 0 to choose by the size of '
             'the volume and the kind of metadata. The first write to a part '
             'of a region waits for the rest of it from the source. With '
             '4 KiB hardly any write waits, but each changes metadata. Larger '
             'regions need less metadata and memory.'),
    cfg.IntOpt(
        'dmclone_hydration_window',
        default=8192, min=4,
        deprecated_name='dmclone_hydration_threshold',
        help='Amount of data in KiB that a clone copies from its source at a '
             'time: hydration_threshold and hydration_batch_size of '
             'dm-clone, which count regions. The kernel copies adjacent '
             'data as one job, in parts of 512 KiB, at most eight at a time '
             '(kcopyd_subjob_size_kb of the module dm_mod). A write to data '
             'that is being copied waits for the whole job. More is faster '
             'while all guests are idle. While any guest of the node uses its '
             'volume, an eighth of the window is copied at a time, in 27 % '
             'of the time, or in 2 % if it is that of another volume.'),
    cfg.IntOpt(
        'dmclone_hydration_batch_size',
        min=4,
        deprecated_for_removal=True,
        deprecated_since='0.1.0',
        deprecated_reason='The kernel does not limit several jobs against '
                          'each other. With smaller batches all of '
                          'dmclone_hydration_window is in the queues of the '
                          "link and the disk at once, before a guest's "
                          'reads.',
        help='Maximum amount of adjacent data in KiB that is copied as one '
             'job (hydration_batch_size of dm-clone, which counts regions). '
             'Default: dmclone_hydration_window.'),
    cfg.IntOpt(
        'dmclone_chain_limit',
        default=3, min=1,
        help='Maximum number of older homes that a volume may need. A volume '
             'that moves again before it is complete reads from its last '
             'home, which reads from the one before it: all of them have to '
             'run. A move that would exceed the limit is refused until a '
             'copy is complete. With 1 only complete volumes move.'),
    cfg.IntOpt(
        'dmclone_copies_at_once',
        default=4, min=1,
        help='Number of copies to this node that run at a time, and of '
             'copies that other nodes make from it. Others wait for their '
             'turn; guests use their volumes meanwhile. "dmclone pace" '
             'changes this, and the next four, while copies run.'),
    cfg.StrOpt(
        'dmclone_bandwidth_in',
        default='90%', regex=_BANDWIDTH,
        help='What all copies from other nodes to this one use together, at '
             'most: a share of the link that has target_ip_address, such as '
             '50%, or an amount per second, such as 200MB or 1Gbit, or '
             '"none". A share limits nothing if the link has no speed, as '
             'virtual cards.'),
    cfg.StrOpt(
        'dmclone_bandwidth_out',
        default='90%', regex=_BANDWIDTH,
        help='The same of all copies that other nodes make from this one.'),
    cfg.StrOpt(
        'dmclone_copy_order',
        default='nearly-complete',
        choices=[
            ('nearly-complete', 'the copy with the fewest bytes left'),
            ('longest-wait', 'the copy that has waited longest')],
        help='Which copy is next when one is complete. Before that come the '
             'copies that an operator wants first, those that other copies '
             'read through, those from a node whose service is disabled, as '
             'while it is drained, and those that have waited for an hour.'),
    cfg.IntOpt(
        'dmclone_hydration_min_rate',
        default=16, min=0,
        help='Rate in MiB per second at which the volume of a busy guest is '
             'copied at least when it has its turn, if the link and the disks '
             'can do it. The kernel copies only while none of the guest\'s '
             'requests is under way. Where such moments are too rare for '
             'this rate, the driver holds the requests back for some '
             'milliseconds, 50 at most and five times a second at most. With '
             '0 it never does that, and the copy may never end. While guests '
             'of other volumes use the node, all copies together get a '
             'quarter of this rate at least. Volumes whose copy has begun '
             'with 0 are not held until their node is booted.'),
    cfg.IntOpt(
        'dmclone_check_interval',
        default=10, min=1,
        help='Seconds between two checks for clones that are complete or in '
             'trouble. An event from the kernel starts a check, too.'),
    cfg.IntOpt(
        'dmclone_prepare_timeout',
        default=40, min=5,
        help='Seconds that a peer has to prepare a destination. It has less '
             'if less is left of rpc_response_timeout, which limits the '
             'whole request.'),
    cfg.IntOpt(
        'dmclone_source_timeout',
        default=-1, min=-1,
        help='Seconds after which a request for data that is not copied yet '
             'gets an I/O error, while the node of the source does not '
             'answer. With -1 the request waits until that node is back: the '
             'guest may hang, but no request fails. A change applies to '
             'iSCSI sessions that begin after it.'),
    cfg.BoolOpt(
        'dmclone_remote_attach',
        default=False,
        help='Allow a host without this backend to attach a volume over '
             'iSCSI, without a move. By default that is refused. Such an '
             'instance has no local storage and depends on both hosts.'),
    cfg.BoolOpt(
        'dmclone_remote_attach_without_room',
        default=False,
        help='Where the node of an attachment has this backend, but no room '
             'for the volume, connect the volume over iSCSI instead of '
             'refusing. It stays on its node, whose option decides. Such an '
             'instance has no local storage, depends on both nodes, and does '
             'not survive a reboot of the other one. The volume does not '
             'move while it is connected so: each new attachment asks for '
             'room again, and the log and "dmclone status" say when there '
             'is some.'),
    cfg.PortOpt(
        'dmclone_metrics_port',
        default=0,
        help='Port at which the service offers metrics to Prometheus, by '
             'plain HTTP and without authentication. With 0 there are none.'),
    cfg.HostAddressOpt(
        'dmclone_metrics_address',
        default='127.0.0.1',
        help='Address at which the service offers metrics: that of the '
             'network of Prometheus. By default only programs of the node '
             'reach it.'),
]

CONF = cfg.CONF
CONF.register_opts(MOVE_OPTS, group=configuration.SHARED_CONF_GROUP)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for the sample file, as oslo.config expects them."""
    return [(configuration.SHARED_CONF_GROUP,
             MOVE_OPTS)]
