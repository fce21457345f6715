# SPDX-License-Identifier: Apache-2.0
"""Run programs as root, for the modules that know their arguments."""

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


# A suspend waits for the requests that have passed the device. Until these
# have ended, the device-mapper queues new requests, and their submitters do
# not sleep (dm_submit_bio, __dm_suspend in drivers/md/dm.c). Only that effect
# is needed. The resume then releases the queued requests at once, even if the
# service has ended. They are also released if the suspend is killed.
_HOLD = 'dmsetup suspend --noflush --nolockfs "$0"; exec dmsetup resume "$0"'

_holding = {}


@privsep.dmclone_context.entrypoint
def hold(name):
    """Queue requests to a device while earlier ones are stuck below it.

    Returns at once. One process per device does it; if the device has one
    already, this does nothing.
    """
    for ended in [key for key, process in _holding.items()
                  if process.poll() is not None]:
        del _holding[ended]
    if name not in _holding:
        process = subprocess.Popen(
            ['sh', '-c', _HOLD, name], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _holding[name] = process
        # Without this it would be a zombie until the next outage.
        threading.Thread(target=process.wait, daemon=True).start()


@privsep.dmclone_context.entrypoint
def lvm(arguments):
    """Run an LVM command as Cinder does and return what it prints.

    Cinder's prefix of a command selects LVM's configuration (lvm_conf_file),
    and so the disks that LVM sees.

    :raises: ProcessExecutionError
    """
    # Imported here, because the privileged daemon imports this module, too,
    # and does not need Cinder.
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
