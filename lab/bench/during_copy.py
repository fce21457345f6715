# SPDX-License-Identifier: Apache-2.0
"""Run a command on a node for as long as a clone is copied.

usage: python -m lab.bench.during_copy CLONE SECONDS OUT [COMMAND]

It begins when the kernel has hydration on. At the end of the copy, or after
some seconds, it gets SIGTERM; its output is in OUT. Prints a line of JSON, see
:func:`measure`.

This runs on the node, as each process that is started there costs the load
more than all looks at the clone.
"""

import json
import subprocess
import sys
import time

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status

#: Seconds between two looks.
LOOK = 0.05
#: Seconds until the copy has begun, until the clone of a complete volume is
#: gone, and until the command has ended.
TO_BEGIN, TO_REPLACE, TO_END = 60, 30, 60


def look(name):
    """Return the status of a clone, None if it is a clone no longer."""
    try:
        return status.clone(ioctl.status(name))
    except (OSError, ValueError):
        return None


def measure(name, seconds, start, look=look, clock=time.monotonic,
            sleep=time.sleep):
    """Wait until a clone is copied, while a process runs.

    :param seconds: for which the copy may last
    :param start: called when it begins; returns the function that ends what
        was started
    :returns: 'seconds' of the copy, or until it was given up, the 'share' that
        was copied then, and the seconds 'after' it until the clone was
        replaced by the volume itself, which is still part of the load
    """
    waits = clock()
    found = look(name)
    while found and not found.hydration:
        if clock() - waits >= TO_BEGIN:
            raise TimeoutError('the copy has not begun')
        sleep(LOOK)
        found = look(name)
    begin = clock()
    end = start()
    while found and not found.complete and clock() - begin < seconds:
        sleep(LOOK)
        found = look(name)
    copied = clock() - begin
    share = found.hydrated / found.total if found else 1
    while found and found.complete and (
            clock() - begin - copied < TO_REPLACE):
        sleep(LOOK)
        found = look(name)
    after = clock() - begin - copied
    end()
    return {'seconds': copied, 'share': share, 'after': after}


def starter(command, out):
    """Return the function that starts a command, as measure() needs it."""
    def start():
        with open(out, 'wb') as stream:
            process = subprocess.Popen(['sh', '-c', 'exec ' + command],
                                       stdout=stream)

        def end():
            process.terminate()
            process.wait(TO_END)
        return end
    return start


def main():
    name, seconds, out, *command = sys.argv[1:]
    print(json.dumps(measure(
        name, float(seconds), starter(command[0], out) if command else
        lambda: lambda: None)))


if __name__ == '__main__':
    main()
