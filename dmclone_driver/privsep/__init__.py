# SPDX-License-Identifier: Apache-2.0
"""The privsep context in which this driver acts as root."""

import collections.abc
from typing import Any
from typing import Protocol
from typing import TypeVar

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import priv_context

#: The section of its options.
SECTION = 'dmclone_privileged'

Function = TypeVar('Function', bound=collections.abc.Callable[..., Any])


class Context(Protocol):
    """What this driver uses of a privsep context, which has no types."""

    def entrypoint(self, function: Function) -> Function:
        """Have a function run as root."""


dmclone_context: Context = priv_context.PrivContext(
    'dmclone_driver',
    cfg_section=SECTION,
    pypath=__name__ + '.dmclone_context',
    capabilities=[capabilities.CAP_SYS_ADMIN,
                  capabilities.CAP_DAC_OVERRIDE,
                  capabilities.CAP_DAC_READ_SEARCH,
                  capabilities.CAP_SYS_RAWIO,
                  capabilities.CAP_IPC_LOCK,
                  capabilities.CAP_SYS_NICE,
                  capabilities.CAP_MKNOD])

# One thread of the daemon always waits for device-mapper events, one paces the
# copies of clones, and one may be blocked by a device that is slow to suspend.
# The default, one thread per core, would leave none for other calls on a node
# with one or two cores.
cfg.CONF.set_default('thread_pool_size', 16, group=SECTION)
