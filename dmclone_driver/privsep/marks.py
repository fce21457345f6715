# SPDX-License-Identifier: Apache-2.0
"""Mark regions of clones as root."""

import contextlib
import json
import os
import sys
from typing import Any

from oslo_concurrency import processutils

import dmclone_driver
from dmclone_driver.node.devicemapper import marks as process
from dmclone_driver.node.devicemapper import swap
from dmclone_driver import privsep
from dmclone_driver.privsep import swaps

_PACKAGES = os.path.dirname(os.path.dirname(dmclone_driver.__file__))


@privsep.dmclone_context.entrypoint
def run(name_id: str, handle: str, ranges: list[list[int]],
        seconds: float) -> dict[str, Any]:
    """Mark regions of a clone for some time, see :class:`marks.Marker`.

    :param handle: its name in device-mapper
    :param ranges: first region and number each
    :returns: the fields of a :class:`marks.Result`
    :raises: ProcessExecutionError
    """
    try:
        answer, _errors = processutils.execute(
            sys.executable, '-ISc', process.PROGRAM, _PACKAGES, handle,
            process_input=json.dumps({
                'name_id': name_id, 'ranges': ranges, 'seconds': seconds,
                'locks': swap.LOCKS}),
            preexec_fn=os.setsid)
    except processutils.ProcessExecutionError:
        # It may have been killed. If this resume fails, the watcher resumes
        # the handle.
        with contextlib.suppress(processutils.ProcessExecutionError):
            swaps.resume(handle, handle)
        raise
    return json.loads(answer)
