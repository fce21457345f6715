# SPDX-License-Identifier: Apache-2.0
"""Devices that fail for some time."""

import contextlib

# Makes a table's disk fail each write.
REFUSES_WRITES = ("modprobe dm-flakey; sed -E 's/linear (\\S+ \\S+)/"
                  "flakey \\1 0 1 1 error_writes/'")
# Makes it fail each request.
FAILS = "sed 's/linear .*/error/'"
_HOLE = """awk -v at=%d '$3 == "linear" {
    print $1, at, $3, $4, $5
    print $1 + at, 128, "error"
    print $1 + at + 128, $2 - at - 128, $3, $4, $5 + at + 128
    next } { print }'"""
_SWAP = (' | dmsetup load {0} && dmsetup suspend --noflush {0}; '
         'dmsetup resume {0}')


def hole(mib):
    """Return a command that makes 64 KiB of a table unreadable.

    :param mib: the offset in MiB
    """
    return _HOLE % (mib << 11)


@contextlib.contextmanager
def failing(node, device, how):
    """Make a device fail, and repair it at the end.

    :param how: a command that changes its table
    """
    table = node.run('dmsetup table ' + device)
    node.run('dmsetup table %s | (%s)' % (device, how) +
             _SWAP.format(device))
    try:
        yield
    finally:
        node.run("echo '%s'" % table.strip() + _SWAP.format(device))
