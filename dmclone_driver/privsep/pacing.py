# SPDX-License-Identifier: Apache-2.0
"""Pace the copies of clones as root."""

from typing import Any

from dmclone_driver.node.devicemapper import pokes
from dmclone_driver import privsep


@privsep.dmclone_context.entrypoint
def run(requests: list[dict[str, Any]], seconds: float) -> dict[str, str]:
    """Pace clones for some time, see :func:`pokes.run`.

    One call does that for all clones: a call for each message would cost more
    than the message.

    :param requests: the fields of a :class:`pokes.Request` each
    :returns: the last status of each device that is still a clone
    """
    return pokes.run(pokes.RealKernel(),
                     [pokes.Request(**request) for request in requests],
                     seconds)
