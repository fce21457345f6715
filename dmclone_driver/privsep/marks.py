# SPDX-License-Identifier: Apache-2.0
"""Mark regions of clones as root."""

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

from oslo_concurrency import processutils

import dmclone_driver
from dmclone_driver.node.devicemapper import marks as process
from dmclone_driver.node.devicemapper import swap
from dmclone_driver import privsep
from dmclone_driver.privsep import swaps

# Seconds that the process may take besides those in which it marks: to start,
# to wait for a swap, and to commit.
PATIENCE = 5

_PACKAGES = os.path.dirname(os.path.dirname(dmclone_driver.__file__))


@privsep.dmclone_context.entrypoint
def run(name_id: str, handle: str, ranges: list[list[int]],
        seconds: float) -> dict[str, Any]:
    """Mark regions of a clone for some time, see :class:`marks.Marker`.

    :param handle: its name in device-mapper
    :param ranges: first region and number each
    :returns: the fields of a :class:`marks.Result`
    :raises: ProcessExecutionError, also if the process does not end in time
    """
    try:
        return json.loads(_answer(handle, {
            'name_id': name_id, 'ranges': ranges, 'seconds': seconds,
            'locks': swap.LOCKS}, seconds + PATIENCE))
    except processutils.ProcessExecutionError:
        # It may have been killed. If this resume fails, the watcher resumes
        # the handle.
        with contextlib.suppress(processutils.ProcessExecutionError):
            swaps.resume(handle, handle)
        raise


def _answer(handle: str, request: dict[str, Any], seconds: float) -> str:
    """Return what the process prints.

    If it does not end in time it is killed: a stopped process keeps the lock,
    so that no other process can resume the handle, for which a guest may wait.
    """
    words = [sys.executable, '-ISc', process.PROGRAM, _PACKAGES, handle]
    with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            start_new_session=True) as child:
        try:
            answer, errors = child.communicate(json.dumps(request),
                                               timeout=seconds)
        except Exception:
            # Not TimeoutExpired: with eventlet there are two of that name.
            child.kill()
            answer, errors = child.communicate()
    if child.returncode:
        raise processutils.ProcessExecutionError(
            answer, errors, child.returncode, ' '.join(words))
    return answer
