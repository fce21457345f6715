# SPDX-License-Identifier: Apache-2.0
"""The only module that runs LVM's commands.

Cinder's LVM class runs its own: it creates, extends and deletes logical
volumes. The modules :mod:`logical_volumes` and :mod:`volume_groups` know the
arguments and parse the output.
"""

import json
import re

from cinder.brick.local_dev import lvm as cinder_lvm
from oslo_concurrency import processutils

from dmclone_driver.privsep import command

#: Seconds that a command of LVM may take. One that reads a device which does
#: not answer would otherwise hold the lock of its volume for ever.
TIMEOUT = 300
#: The same for one that activates a thin pool: it waits for thin_check, which
#: reads all metadata of the pool.
TIMEOUT_OF_POOL = 3 * 3600

# LVM's exit code for a valid command that failed (lib/commands/errors.h,
# ECMD_FAILED).
_FAILED = 5

# What lvm.conf may change of a report. With the first, errors are in the JSON,
# e.g. with 2.03.31, that of Debian 13; with the others, 'zero' is '1', other
# texts separate tags, and columns are missing or have other names.
_FORMAT = ('--config', ' '.join((
    'log/report_command_log=0', 'report/binary_values_as_numeric=0',
    'report/list_item_separator=","', 'report/compact_output=0',
    'report/compact_output_cols=""', 'report/prefixes=0')))


class LVMError(processutils.ProcessExecutionError):
    """A command of LVM failed."""


class NotFound(LVMError):
    """There is no such logical volume in its group, or physical volume."""

    PATTERN = re.compile('Failed to find (?:logical|physical) volume ')


class Exists(LVMError):
    """There is a logical volume of that name in the group.

    See _lv_create_an_lv in lib/metadata/lv_manip.c.
    """

    PATTERN = re.compile('Logical Volume ".*" already exists in volume group ')


class GroupNotFound(LVMError):
    """There is no such volume group, or its disks are missing."""

    PATTERN = re.compile('Volume group ".*" not found')


class TimedOut(LVMError):
    """A command of LVM took longer than :data:`TIMEOUT`, and was ended."""


def run(*arguments: str, timeout: int = TIMEOUT) -> str:
    """Run a command of LVM and return what it prints.

    Cinder's prefix of a command selects LVM's configuration (lvm_conf_file),
    and so the disks that LVM sees.

    :param timeout: seconds that it may take
    :raises: LVMError
    """
    environment = [part for part in cinder_lvm.LVM.LVM_CMD_PREFIX
                   if part.startswith('LVM_')]
    try:
        return command.lvm(list(arguments), environment, timeout)
    except processutils.ProcessExecutionError as error:
        raise _typed(error)(error.stdout, error.stderr, error.exit_code,
                            error.cmd, error.description) from error


def _typed(error: processutils.ProcessExecutionError) -> type[LVMError]:
    if error.exit_code == command.TIMED_OUT:
        return TimedOut
    for kind in (Exists, GroupNotFound, NotFound):
        if error.exit_code == _FAILED and kind.PATTERN.search(
                error.stderr):
            return kind
    return LVMError


def settings(section: str, folder: str | None) -> str:
    """Return a section of LVM's configuration, defaults included.

    :param folder: LVM_SYSTEM_DIR, None for LVM's default
    :raises: ProcessExecutionError
    """
    environment = ['LVM_SYSTEM_DIR=' + folder] if folder else []
    return command.lvm(['lvmconfig', '--typeconfig', 'full', section],
                       environment, TIMEOUT)


def report(*arguments: str) -> list[dict[str, str]]:
    """Run a reporting command of LVM and return its rows.

    :param arguments: the command, what it reports on, and at the end ``-o``
        with the names of the columns; sizes are in bytes
    :returns: list of dicts of text by column
    :raises: LVMError
    """
    verb, *rest = arguments
    kind = {'lvs': 'lv', 'vgs': 'vg', 'pvs': 'pv'}[verb]
    text = run(verb, *_FORMAT, '--reportformat', 'json',
               '--units', 'b', '--nosuffix', *rest)
    return json.loads(text)['report'][0][kind]


def device(group: str, name: str, layer: str = '') -> str:
    """Return the name in device-mapper of a logical volume, or of its layer.

    See dm_build_dm_name in libdm/libdm-string.c of LVM.
    """
    return '-'.join(part.replace('-', '--')
                    for part in (group, name, layer) if part)


def words(text: str) -> frozenset[str]:
    """Return a comma-separated column as a frozenset."""
    return frozenset(filter(None, text.split(',')))
