# SPDX-License-Identifier: Apache-2.0
"""Pace the copies of clones as root."""

import dataclasses
import json
import os
import select
import subprocess
import sys
from typing import Any

import dmclone_driver
from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import pokes
from dmclone_driver.node.devicemapper import quotas
from dmclone_driver.node.devicemapper import swap
from dmclone_driver import privsep

_PACKAGES = os.path.dirname(os.path.dirname(dmclone_driver.__file__))

# Seconds that a hold takes at most, with the start of its process and the
# commit before it.
_PATIENCE = 5


class Holder:
    """The process that holds requests, see :mod:`devicemapper.holds`.

    It is started when it is needed, and ends when it is not any more, or with
    this process, whose end of the pipe it reads.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self, name: str, window: int) -> holds.Result:
        """Hold the requests of a clone, see :meth:`holds.Holder.hold`.

        A process that does not answer is killed. The kernel lets the requests
        go on then.
        """
        process = self._running()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps([name, window]).encode() + b'\n')
            process.stdin.flush()
            if select.select([process.stdout], [], [], _PATIENCE)[0]:
                return holds.Result(**json.loads(process.stdout.readline()))
        except (OSError, ValueError):
            # It has ended.
            pass
        self._end(process)
        return holds.Result(holds.FAILED)

    def _running(self) -> 'subprocess.Popen[bytes]':
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, '-ISc', holds.PROGRAM, _PACKAGES,
                 swap.LOCKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL)
        return self._process

    def _end(self, process: 'subprocess.Popen[bytes]') -> None:
        process.kill()
        self._process = None


class _Kernel(pokes.RealKernel):
    """The kernel of this node, as long as this process runs."""

    _holder = Holder()
    _quotas = quotas.Quotas(quotas.RealKernel())

    def hold(self, name: str, window: int) -> holds.Result:
        """Have the copies of a window begin, without a hold if possible."""
        return (self._quotas.begin(name, window) or
                self._holder.hold(name, window))


@privsep.dmclone_context.entrypoint
def run(requests: list[dict[str, Any]],
        seconds: float) -> dict[str, dict[str, Any]]:
    """Pace clones for some time, see :func:`pokes.run`.

    One call does that for all clones: a call for each message would cost more
    than the message.

    :param requests: the fields of a :class:`pokes.Request` each
    :returns: the fields of a :class:`pokes.Outcome` for each clone
    """
    found = pokes.run(_Kernel(), [pokes.Request(**request)
                                  for request in requests], seconds)
    return {name: dataclasses.asdict(outcome)
            for name, outcome in found.items()}
