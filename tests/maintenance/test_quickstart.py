# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "Quick start", on nodes without the driver."""

import shlex

from lab.common import pools
from lab import config
from lab import paths
from tests.maintenance import recipes
from tests.scenarios.lib import live

DISK = '/dev/ubdb'
GROUP = 'cinder-volumes'
#: The name of the laboratory's volume type, and one for the meantime.
TYPE = 'dmclone'
AWAY = 'dmclone-of-laboratory'
#: In the node's shared folder: a copy of the controller's settings.
CONF = 'controller.conf'
#: The page's volume and instance are in one project.
PROJECT = {'OS_PROJECT_NAME': 'demo'}
#: What the page sets, and is not the controller's.
_OF_PAGE = ('enabled_backends', 'host', 'my_ip',
            'volume_service_inithost_offload')
_FILES = ('/etc/cinder/cinder.conf /etc/cinder/rootwrap.d/dmclone.filters '
          '/etc/lvm/lvmlocal.conf /etc/tgt/conf.d/cinder.conf '
          '/etc/tgt/conf.d/dmclone.conf '
          '/etc/udev/rules.d/11-dm-dmclone.rules '
          '/etc/systemd/system/nova-compute.service.d/dmclone.conf')
# The group and the folder are those of Cinder's packages.
_MAKE_FRESH = (
    'rm -f {files} && vgremove -qq -y {group} && pvremove -qq -y {disk} && '
    'udevadm control --reload && groupadd --force --system cinder && '
    'mkdir -p /etc/cinder/rootwrap.d').format(
        files=_FILES, group=GROUP, disk=DISK)
# The boot of a node writes the laboratory's other files.
_RESTORE = (
    'rm -f {files} && echo "include /var/lib/cinder/volumes/*" > '
    '/etc/tgt/conf.d/cinder.conf && (vgs {group} || '
    'vgcreate -qq {group} {disk}) && sync').format(
        files=_FILES, group=GROUP, disk=DISK)


class QuickStartTest(recipes.Recipes, live.LiveTest):
    """From a node's free disk to a volume that follows an instance."""

    PAGE = 'admin/quickstart'
    # The page's volumes are cleared completely.
    TO_END = 300

    def setUp(self):
        super().setUp()
        self.nodes = list(self.lab.nodes.values())
        self.addCleanup(self.restore_nodes)
        self.addCleanup(self.restore_type)
        # First of all, while the services are those of the page.
        self.addCleanup(self.clean_up)
        self.addCleanup(self.servers.delete_all)
        self.rename_type(TYPE, AWAY)
        for node in self.nodes:
            self.make_fresh(node)

    # The laboratory

    def make_fresh(self, node):
        """Remove the driver's files, its group and its settings."""
        node.stop('cinder-volume')
        settings = config.cinder_node(node.name, node.ip, self.lab.settings)
        del settings['dmclone']
        for name in _OF_PAGE:
            settings['DEFAULT'].pop(name)
        config.write(node.machine.share / CONF, settings)
        node.run(_MAKE_FRESH)

    def restore_nodes(self):
        """Boot the nodes with the laboratory's own files and settings."""
        for node in self.nodes:
            node.run(_RESTORE)
            (node.machine.share / CONF).unlink(missing_ok=True)
            node.enable('cinder-volume')
            node.cut_power()
        for node in self.nodes:
            node.power_on()
        for node in self.nodes:
            node.wait_ready()

    def types(self):
        """Return {name: id} of the volume types."""
        return {each['name']: each['id'] for each in
                self.user.as_admin('GET', '/types')['volume_types']}

    def rename_type(self, old, new):
        self.user.as_admin('PUT', '/types/' + self.types()[old],
                           {'volume_type': {'name': new}})

    def restore_type(self):
        """Delete the page's volume type, and restore the laboratory's."""
        of_page = self.types().get(TYPE)
        if AWAY not in self.types():
            return
        if of_page:
            self.rename_type(TYPE, 'of-page')
        self.rename_type(AWAY, TYPE)
        if of_page:
            # Cinder deletes neither the default type, nor one without that.
            self.user.as_admin('DELETE', '/types/' + of_page)

    def nothing_left(self, timeout=None):
        # The page's services have made thin pools.
        for node in self.nodes:
            pools.wait_empty(node)
            pools.remove(node)
        super().nothing_left(timeout)

    # The page

    def values_of(self, node):
        return {'DISK': DISK, 'ADDRESS': node.ip,
                'CONTROLLER_CONF': '/lab/' + CONF}

    def _run_on_node(self, node, script):
        return recipes.Recipes._run_on_node(node, 'cd %s\n%s' % (
            shlex.quote(str(paths.CHECKOUT)), script))

    def test_quick_start(self):
        self.follow('Packages and kernel')
        self.follow('The driver')
        self.assertIn('dmclone-',
                      self.follow('The volume group and the target'))
        self.follow('The backend', 0)
        for node in self.nodes:
            node.wait_ready()
        self.follow('The backend', 1, 2)
        said = self.follow('A first volume', 0, **PROJECT)
        self.assertEqual(len(self.nodes), said.count(' up '), said)
        volume_id = self.first_volume()
        home = self.home(volume_id)
        server_id, console = self.boot(home)
        self.follow('A first volume', 1, SERVER=server_id, **PROJECT)
        console.wait_writing(volume_id, home.name)
        said = self.follow('A first volume', 2, SERVER=server_id, **PROJECT)
        there = self.lab.node(self.servers.node(server_id))
        self.assertIsNot(home, there)
        self.assertIn('%s@dmclone#dmclone' % there.name, said)
        console.wait_writing(volume_id, there.name)
        self.hydrated(volume_id, 300)
        self.assertEqual([], console.complaints(volume_id))

    def first_volume(self):
        """Return the id of the page's volume when it is available."""
        volume, = self.user.request('GET', '/volumes?name=first')['volumes']
        return self.user.settled(volume['id'], 'available')['id']
