# SPDX-License-Identifier: Apache-2.0
"""Measure metadata on disks with cheap flushes: tools/bench metadata-fast.

Runs a part of :mod:`lab.bench.metadata` on the nodes' own disks.
"""

import contextlib

from lab.bench import metadata


class Bench(metadata.Bench):
    """Clones on disks with a cache that needs no flush."""

    WHAT = 'metadata-fast'

    def disks(self):
        """Return an empty context: the nodes' own disks are used."""
        return contextlib.nullcontext()
