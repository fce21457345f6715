# SPDX-License-Identifier: Apache-2.0
"""The options with which the laboratory was brought up."""

import dataclasses
import json

from lab import errors
from lab import kernel
from lab import paths

_FILE = paths.STATE / 'lab.json'


@dataclasses.dataclass
class Settings:
    """The options of `up`, kept until `down`."""

    nodes: int = 2
    kernel: str = kernel.DEFAULT
    target: str = 'tgt'
    driver: str = 'dmclone'
    mode: str = 'eventlet'
    bare: bool = False
    nova: bool = False
    #: Whether the backend dmclone makes thin volumes.
    thin: bool = False
    #: The store of the locks: 'file' or 'etcd'.
    coordination: str = 'file'
    #: The file of the driver's Debian package, for nodes with Debian's
    #: Cinder; '' for nodes that run the checkout.
    package: str = ''
    #: MiB per node; 0 for the default.
    memory: int = 0

    def names(self):
        """Return {name: number} of the nodes."""
        return {'node%d' % n: n for n in range(1, self.nodes + 1)}

    @property
    def node_memory(self):
        """Return the memory of a node in MiB."""
        return self.memory or (2048 if self.nova else 1024)

    def save(self):
        _FILE.parent.mkdir(parents=True, exist_ok=True)
        _FILE.write_text(json.dumps(dataclasses.asdict(self), indent=1))

    @classmethod
    def load(cls):
        try:
            return cls(**json.loads(_FILE.read_text()))
        except FileNotFoundError:
            raise errors.LabError(
                'no laboratory is up (no %s): bring one up with '
                '`tools/lab up`' % _FILE)


def forget():
    _FILE.unlink(missing_ok=True)
