# SPDX-License-Identifier: Apache-2.0
"""The speed of the link that has an address of this node."""

import psutil

# psutil counts in megabits per second, as the kernel does.
_MEGABIT = 1000 * 1000 // 8


def speed(address: str) -> int | None:
    """Return the speed of an address's link in bytes per second.

    A bond has the sum of its links, a bridge the speed of the fastest. Virtual
    cards may not have one.

    :returns: None if it is not known
    """
    states = psutil.net_if_stats()
    found = [states[name].speed for name, addresses in
             psutil.net_if_addrs().items() if name in states and any(
                 each.address.partition('%')[0] == address
                 for each in addresses)]
    return max(found, default=0) * _MEGABIT or None
