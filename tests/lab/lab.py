# SPDX-License-Identifier: Apache-2.0
"""The laboratory as a whole: bring it up, find it again, take it down."""

from tests.lab import errors
from tests.lab import network
from tests.lab import node
from tests.lab import paths
from tests.lab import proc
from tests.lab import settings as settings_module


class Lab:
    """The nodes and the control plane."""

    def __init__(self, settings):
        self.settings = settings
        self.nodes = {name: node.Node(name, number, settings)
                      for name, number in settings.names().items()}

    @classmethod
    def load(cls):
        """The laboratory that is up; LabError when there is none."""
        settings = settings_module.Settings.load()
        if not network.exists():
            raise errors.LabError('the laboratory is gone (a restart of the '
                                  'machine?): run `tools/lab down`')
        return cls(settings)

    def node(self, name):
        try:
            return self.nodes[name]
        except KeyError:
            raise errors.LabError('no node %s, there are: %s' % (
                name, ' '.join(self.nodes)))

    def up(self):
        """Start everything on fresh disks."""
        self.settings.save()
        network.create(self.settings.names())
        for n in self.nodes.values():
            errors.say('starting %s' % n.name)
            n.machine.make_disks()
            n.power_on()
        for n in self.nodes.values():
            n.wait_booted()
            errors.say('%s has booted' % n.name)


def down():
    """Take down whatever of a laboratory is there."""
    for name in proc.names():
        proc.kill(name)
    network.destroy()
    for n in paths.NODES.glob('*'):
        node.shutil.rmtree(n)
    settings_module.forget()
