# SPDX-License-Identifier: Apache-2.0
"""Options of a backend that uses this driver."""

from cinder.volume import configuration
from oslo_config import cfg

TRANSFER_OPTS = [
    cfg.StrOpt(
        'dmclone_metadata_volume_group',
        help='LVM volume group for the metadata of clones, for example on '
             'an NVMe disk. It must survive a power cut. Default: the group '
             'of the volumes themselves.'),
    cfg.IntOpt(
        'dmclone_region_size',
        default=0, min=0, max=1048576,
        help='Size in KiB of the regions that a clone tracks and copies; a '
             'power of two from 4 to 1048576, or 0 to choose by the size of '
             'the volume. Smaller regions make a first small write cheaper, '
             'larger ones need less metadata and memory.'),
    cfg.IntOpt(
        'dmclone_hydration_threshold',
        default=64, min=1,
        help='How many regions may be on their way from the source at a '
             'time (hydration_threshold of dm-clone).'),
    cfg.IntOpt(
        'dmclone_hydration_batch_size',
        default=64, min=1,
        help='How many adjacent regions are copied as one '
             '(hydration_batch_size of dm-clone).'),
    cfg.IntOpt(
        'dmclone_check_interval',
        default=10, min=1,
        help='Seconds between two looks at the kernel for clones that are '
             'complete or in trouble, beside the events that the kernel '
             'sends.'),
    cfg.IntOpt(
        'dmclone_prepare_timeout',
        default=40, min=5,
        help='Seconds that a peer has to prepare a volume. Keep it below '
             'rpc_response_timeout, which limits the whole request.'),
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
CONF.register_opts(TRANSFER_OPTS, group=configuration.SHARED_CONF_GROUP)


def list_opts():
    """Return the options for the sample file, as oslo.config wants them."""
    return [(configuration.SHARED_CONF_GROUP,
             TRANSFER_OPTS)]
