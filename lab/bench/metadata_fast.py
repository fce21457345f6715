# SPDX-License-Identifier: Apache-2.0
"""The same where a flush costs next to nothing: tools/bench metadata-fast.

A part of what :mod:`lab.bench.metadata` measures, on the nodes' own disks.
"""

import contextlib

from lab.bench import metadata


class Bench(metadata.Bench):
    """Clones on disks with a cache that needs no flush."""

    WHAT = 'metadata-fast'

    def disks(self):
        """Use those that are there."""
        return contextlib.nullcontext()
