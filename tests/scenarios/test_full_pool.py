# SPDX-License-Identifier: Apache-2.0
"""A thin pool that fills up under a guest, and what is left of its data."""

from lab.common import pools
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations
from tests.scenarios.lib import writers

GIB = 2
_FILLER = pools.GROUP + '/filler'
# With --errorwhenfull y the last write does not wait for a minute.
_FILL = ('lvchange -qq --errorwhenfull {error} {pool} && '
         'lvcreate -qq --yes -V {gib}g -T {pool} -n filler && '
         '! dd if=/dev/zero of=/dev/{filler} bs=64k oflag=direct 2>&1 && '
         'lvchange -qq --errorwhenfull n {pool}')


@slow
class FullPoolTest(writers.Writers, operations.Operations, base.E2ETest):
    """What is acknowledged is kept, and the volume comes back."""

    def fill_pool(self, node):
        """Write another volume until the pool has no block left."""
        node.run(_FILL.format(error='y', pool=pools.POOL, gib=2 * GIB,
                              filler=_FILLER))
        self.assertEqual('100.00', node.run(
            'lvs --noheadings -o data_percent ' + pools.POOL).strip())

    def write_until_full(self, node, path, volume_id):
        """Return the newest record that is durable when writes fail."""
        writer = writers.Writer(node, path, volume_id, may_fail=True)
        # The kernel has a write wait for a minute.
        wait.until(writer.has_ended, 'a write to fail', 180)
        return writer.last

    def test_while_it_hydrates(self):
        """Also over a power cut; and it is completed when there is room."""
        nodes = list(self.lab.nodes.values())
        with pools.on(nodes, self.end_volumes, gib=GIB):
            old = self.lab.node('node1')
            new = self.other(old)
            with self.created_on(old):
                volume_id, _home, _checksum = self.filled_volume()
            with self.slow_network(new):
                path = user_module.path(self.user.attach(volume_id, new))
                self.fill_pool(new)
                acknowledged = self.write_until_full(new, path, volume_id)
                # Else it would be read-only until its node starts again.
                self.assertRegex(self.clone_status(new, path), '(?m) rw *$')
            with self.power_cut(new):
                pass
            new.run('lvremove -qq --yes ' + _FILLER)
            self.hydrated(volume_id, timeout=300)
            self.compare(new, path, volume_id, acknowledged)
            with self.writing(new, path, volume_id) as writer:
                pass
            self.compare(new, path, volume_id, writer.last)

    def test_at_home(self):
        """The volume can be written again as soon as there is room."""
        nodes = list(self.lab.nodes.values())
        with pools.on(nodes, self.end_volumes, gib=GIB):
            home = self.lab.node('node1')
            with self.created_on(home):
                volume_id, _home, _checksum = self.filled_volume()
            path = user_module.path(self.user.attach(volume_id, home))
            self.fill_pool(home)
            acknowledged = self.write_until_full(home, path, volume_id)
            with self.power_cut(home):
                pass
            self.compare(home, path, volume_id, acknowledged)
            home.run('lvextend -qq --yes -L +1g ' + pools.POOL)
            with self.writing(home, path, volume_id) as writer:
                pass
            home.run('lvremove -qq --yes ' + _FILLER)
            self.compare(home, path, volume_id, writer.last)
