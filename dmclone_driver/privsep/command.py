# SPDX-License-Identifier: Apache-2.0
"""Running a program as root; called from the modules that know its words."""

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
