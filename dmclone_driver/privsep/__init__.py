# SPDX-License-Identifier: Apache-2.0
"""The one context in which this driver acts as root."""

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

dmclone_context = priv_context.PrivContext(
    'dmclone_driver',
    cfg_section='dmclone_privileged',
    pypath=__name__ + '.dmclone_context',
    capabilities=[capabilities.CAP_SYS_ADMIN,
                  capabilities.CAP_DAC_OVERRIDE,
                  capabilities.CAP_DAC_READ_SEARCH,
                  capabilities.CAP_SYS_RAWIO,
                  capabilities.CAP_IPC_LOCK,
                  capabilities.CAP_SYS_NICE,
                  capabilities.CAP_MKNOD])

# One thread of the daemon always waits for device-mapper events, and one may
# be held up by a device that is slow to suspend: the default, a thread a
# core, would leave none for the work on a machine with one or two cores.
cfg.CONF.set_default('thread_pool_size', 16, group='dmclone_privileged')
