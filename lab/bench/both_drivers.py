# SPDX-License-Identifier: Apache-2.0
"""A benchmark with servers, whose laboratory has both drivers."""

from lab.bench import ratios
from lab.common import servers as servers_module
from lab.common import user as user_module
from lab.common import volumes
from lab import errors
from lab import lab


class Bench(volumes.Volumes):
    """What is measured beside Cinder's LVM driver over iSCSI."""

    def __init__(self):
        self.lab = lab.Lab.load()
        self.lab.check()
        if self.lab.settings.driver != 'both':
            raise errors.LabError('this benchmark needs `tools/lab up '
                                  '--nova --driver both`')
        for node in self.lab.nodes.values():
            node.wait_ready()
        self.user = user_module.User(self.lab)
        self.servers = servers_module.Servers(self.lab)
        self.results = ratios.Ratios()
