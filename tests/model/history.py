# SPDX-License-Identifier: Apache-2.0
"""The history of a volume: actions of users and nodes, and invariants."""

import contextlib

from tests.model import cloud as cloud_module
from tests.model import life
from tests.model.life import Violation
from tests.model import machine
from tests.unit.fakes import steps


class History(life.Life):
    """A volume on three nodes; there may be other volumes on them, too."""

    #: The kinds of volumes that the nodes make, as lvm_type.
    KINDS = ('default', 'default', 'default')
    #: Copies at a time, to each node and from each.
    COPIES = 4
    #: How often the watchers look until all has to be complete.
    LOOKS = 6

    def __init__(self, patch):
        self.cloud = cloud_module.Cloud(patch, self.COPIES)
        self.nodes = [self.cloud.add(name, lvm_type=kind) for name, kind in
                      zip('abc', self.KINDS, strict=True)]
        self.cloud.settle()
        super().__init__(self, self.nodes[0].create().id)
        #: All volumes whose content is checked.
        self.lives = [self]
        #: The number of writes.
        self.number = 0
        self.found = []
        #: The error of the last request that was refused.
        self.refused = None
        self.cloud.steps.observe = self.check
        for node in self.nodes:
            node.kernel.forgotten = self._check_all_after_loss

    # Checks after each step

    def check(self):
        """Check the invariants, and raise Violation if one is broken.

        The violation is recorded, since the driver may survive the exception.
        """
        try:
            with self.cloud.on(None):
                self._look_at_all()
        except (Violation, cloud_module.Lost) as violation:
            self.found.append(str(violation))
            raise Violation(self.found[0])

    def _look_at_all(self):
        found = (self.found + self.cloud.violations() +
                 self.cloud.early_switches() + self.cloud.untagged_gates() +
                 self.cloud.long_chains() +
                 self._look_at_rows())
        if found:
            raise Violation('; '.join(found))
        for each in self.lives:
            each.compare()

    def _look_at_rows(self):
        """Return hydrations and releases that the rows do not allow yet."""
        return self.cloud.early_copies() + self.cloud.early_releases()

    # Faults

    @contextlib.contextmanager
    def fault(self, fault):
        """Run a block of code with a fault.

        :param fault: None, or (number of the step, 'kill' or 'power')
        """
        number, kind = fault or (None, None)
        self.cloud.steps.killed_on = None
        self.cloud.steps.start(number, killed=True, power=kind == 'power')
        try:
            yield
            self.cloud.settle()
        except life.REFUSALS as refused:
            self.refused = refused
        except steps.Killed:
            pass
        finally:
            self.cloud.steps.start()
        killed = self.cloud.steps.killed_on
        if killed and kind == 'power':
            self.cut_power(killed)
        elif killed:
            killed.stop()
        self._take_all_answers()
        self.check()

    def cut_power(self, node):
        """Cut a node's power: its processes and unflushed data are lost."""
        node.reboot()
        for each in self.lives:
            each.lose_power(node)
        self._check_all_after_loss()
        self.check()

    def _check_all_after_loss(self):
        for each in self.lives:
            each.check_after_loss()

    def _take_all_answers(self):
        for each in self.lives:
            each.take_answers()

    def start(self, node, fault=None):
        """Start a node's service."""
        with self.fault(fault):
            node.start()
            self.cloud.settle()

    # Time

    def look(self, node, fault=None):
        with self.fault(fault):
            self.cloud.pass_time(100)
            node.look()

    def hydrate(self, node, region):
        for name in node.clones():
            if node.kernel.devices[name].own.hydration:
                with contextlib.suppress(machine.Wait, OSError):
                    node.kernel.copy(name, region)
        self.check()

    # The end

    def converge(self):
        """End all faults; check that moves complete without leftovers."""
        self.end_faults()
        self.settle()
        if any(each.write or each.late_writes for each in self.lives):
            raise Violation('a write is pending although all faults ended')
        for each in self.lives:
            for node in list(each.attached):
                each.detach(node)
        self.settle()
        self.end_others()
        left = self.cloud.leftovers()
        if left:
            raise Violation('left over: %s' % '; '.join(left))
        self.check()
        self.use()

    def end_others(self):
        """Delete everything except the volume."""

    def end_faults(self):
        """Repair the metadata disks, and start all nodes."""
        for node in self.nodes:
            node.kernel.metadata_fails = False
            if node.kernel.sick():
                # A clone whose metadata has failed needs a reboot.
                self.cut_power(node)
        for node in self.nodes:
            if node.down:
                self.start(node)

    def delete(self):
        """Delete the volume, and check that there is no leftover."""
        home, row = self.home(), self.cloud.row(self.volume_id)
        self.cloud.steps.observe = lambda: None
        with self.cloud.on(home):
            home.driver.delete_volume(row)
        self.cloud.settle()
        del self.cloud.database.rows[self.volume_id]
        left = self.cloud.leftovers()
        if left:
            raise Violation('left over: %s' % '; '.join(left))

    def _is_idle(self):
        """Return whether no write and no move is unfinished."""
        return not (any(each.write or each.late_writes
                        for each in self.lives) or
                    self.cloud.placeholders() or any(
            node.clones() or node.target.exports or node.kernel.disks
            for node in self.nodes))

    def settle(self):
        """Run hydrations and watchers until no move is unfinished."""
        for _ in range(self.LOOKS):
            if self._is_idle():
                break
            for node in self.nodes:
                for region in range(machine.REGIONS):
                    self.hydrate(node, region)
                self.look(node)
        self._take_all_answers()


class SparseHistory(History):
    """The same with thin volumes, of which not all is copied."""

    KINDS = ('thin', 'thin', 'default')

    def fill_pool(self, node, full):
        """Have others take all of a pool, if it is there, or give it back."""
        pool = node.lvm.volumes.get('/dev/volumes/volumes-pool')
        if pool:
            pool['full'] = full

    def end_faults(self):
        """End all faults: there is room."""
        for node in self.nodes:
            self.fill_pool(node, False)
        super().end_faults()
