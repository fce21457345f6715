# SPDX-License-Identifier: Apache-2.0
"""Options of Nova's scheduler that place instances by their volumes."""

from oslo_config import cfg

GROUP = 'dmclone_scheduler'

SCHEDULER_OPTS = [
    cfg.FloatOpt(
        'dmclone_weight_multiplier',
        default=30.0, min=0,
        help='Multiplier of VolumePlaceWeigher. With the default the place '
             'of the volumes outranks all other weighers of Nova with their '
             'default multipliers, except those for failed builds and for '
             'cells. With 0 only the filter decides. The metadata '
             'dmclone_weight_multiplier of an aggregate overrides it.'),
    cfg.IntOpt(
        'dmclone_cache_time',
        default=10, min=0,
        help="Seconds for which answers of Cinder about pools and new "
             'volumes are used again, and for which Cinder is not asked '
             'after it has failed to answer.'),
    cfg.IntOpt(
        'dmclone_cinder_timeout',
        default=5, min=1,
        help='Seconds that Cinder has to answer a query. Without an answer '
             'an instance is placed as if it had no volumes.'),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for the sample file, as oslo.config expects them."""
    return [(GROUP, SCHEDULER_OPTS)]
