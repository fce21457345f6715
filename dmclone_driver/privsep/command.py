# SPDX-License-Identifier: Apache-2.0
"""Running a program as root; called from the modules that know its words."""

import subprocess
import threading

from oslo_concurrency import processutils

from dmclone_driver import privsep


@privsep.dmclone_context.entrypoint
def dmsetup(arguments, table=None):
    """Run dmsetup and return what it prints.

    :param table: text for its standard input
    :raises: ProcessExecutionError
    """
    return processutils.execute('dmsetup', *arguments,
                                process_input=table)[0]


# A suspend waits for the requests that have passed the device; until these
# have ended the device-mapper keeps all that come, and their submitters do
# not sleep (dm_submit_bio, __dm_suspend in drivers/md/dm.c). That is all that
# is wanted here: afterwards they go on at once, whatever became of the
# service. They do the same if the suspend is killed.
_HOLD = 'dmsetup suspend --noflush --nolockfs "$0"; exec dmsetup resume "$0"'

_holding = {}


@privsep.dmclone_context.entrypoint
def hold(name):
    """Keep requests in a device for as long as others are stuck below it.

    Does not wait for that. One process a device does it; if there is one
    already, nothing is done.
    """
    for ended in [key for key, process in _holding.items()
                  if process.poll() is not None]:
        del _holding[ended]
    if name not in _holding:
        process = subprocess.Popen(
            ['sh', '-c', _HOLD, name], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _holding[name] = process
        # Else it would be a zombie until the next outage.
        threading.Thread(target=process.wait, daemon=True).start()


@privsep.dmclone_context.entrypoint
def lvm(arguments):
    """Run an LVM command as Cinder does and return what it prints.

    What Cinder puts before a command says where LVM is configured
    (lvm_conf_file), and so which disks it sees.

    :raises: ProcessExecutionError
    """
    # The privileged daemon imports this module, too, and needs no Cinder.
    from cinder.brick.local_dev import lvm as cinder_lvm
    return _lvm([*cinder_lvm.LVM.LVM_CMD_PREFIX, *arguments])


@privsep.dmclone_context.entrypoint
def _lvm(command):
    return processutils.execute(*command)[0]


@privsep.dmclone_context.entrypoint
def iscsiadm(arguments):
    """Run iscsiadm.

    :raises: ProcessExecutionError
    """
    processutils.execute('iscsiadm', *arguments)


@privsep.dmclone_context.entrypoint
def tgtadm(arguments):
    """Run tgtadm.

    :raises: ProcessExecutionError
    """
    processutils.execute('tgtadm', *arguments)


@privsep.dmclone_context.entrypoint
def modprobe(*arguments):
    """Load a kernel module, or unload it.

    :raises: ProcessExecutionError
    """
    processutils.execute('modprobe', *arguments)
