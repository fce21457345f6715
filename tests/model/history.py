# SPDX-License-Identifier: Apache-2.0
"""One volume's life: what users and nodes do, and what must hold meanwhile.

A guest writes blocks that count up. What was acknowledged is remembered, and
after each step of anybody the volume is looked for on the disks.
"""

import contextlib

from cinder import exception as cinder_exception
from oslo_concurrency import processutils
import oslo_messaging as messaging

from dmclone_driver.move import records
from tests.model import cloud as cloud_module
from tests.model import machine
from tests.unit.fakes import steps

REFUSALS = (cinder_exception.CinderException, OSError,
            processutils.ProcessExecutionError,
            messaging.MessagingException)


def _number(value):
    """Return how many writes there were before a block was written."""
    kind, number = value.split()
    return int(number) if kind == 'write' else 0


class Violation(AssertionError):
    """An invariant does not hold."""


class History:
    """A volume on three nodes, its guest, and what the guest was told."""

    def __init__(self, patch):
        self.cloud = cloud_module.Cloud(patch)
        self.nodes = [self.cloud.add(name) for name in 'abc']
        self.cloud.settle()
        self.volume_id = self.nodes[0].create().id
        self.cloud.steps.observe = self.check
        for node in self.nodes:
            node.kernel.forgotten = self._look_what_is_left
        #: The node that the guest runs on, and its path there.
        self.guest = self.path = None
        #: Where it ran before, until it lets go: (node, path).
        self.old_guest = None
        #: Writes of guests that were killed; they may still happen.
        self.ghosts = []
        #: Attachments: {node: record}.
        self.attached = {}
        self.write = None
        self.number = 0
        self.found = []
        #: What a request was answered last that was refused.
        self.refused = None
        content = self.content('now')
        #: Of each block: what was written last, and what may be there after
        #: a power cut.
        self.last = list(content)
        self.possible = [{value} for value in content]

    # What is looked at after each step

    def content(self, when):
        row = self.cloud.row(self.volume_id)
        return self.cloud.content(row, when)

    def check(self):
        """Note what is lost, or about to be, and raise Violation.

        It is noted since the driver may survive the exception.
        """
        try:
            with self.cloud.on(None):
                self._look_at_all()
        except (Violation, cloud_module.Lost) as violation:
            self.found.append(str(violation))
            raise Violation(self.found[0])

    def _look_at_all(self):
        found = (self.found + self.cloud.violations() +
                 self.cloud.early_switches() + self._look_at_rows())
        if found:
            raise Violation('; '.join(found))
        self._look_at_the_guest()
        now, safe = self.content('now'), self.content('safe')
        for block in range(machine.LENGTH):
            if now[block] in self._copied(block):
                self.last[block] = now[block]
            if now[block] not in self._expected(block):
                raise Violation('block %d is %s instead of %s' % (
                    block, now[block], self.last[block]))
            if safe[block] not in (self.possible[block] |
                                   self._expected(block)):
                raise Violation('a power cut would make block %d %s' % (
                    block, safe[block]))

    def _look_at_rows(self):
        """See that what the database says allows what is done."""
        return self.cloud.early_copies() + self.cloud.early_releases()

    def _look_at_the_guest(self):
        """See that nothing was done to the handle of a running guest.

        One that has come here in a migration may still have to go back.
        """
        device = self.guest and self.guest.kernel.get(self.path)
        if device and device.sealed and not self.old_guest:
            raise Violation('%s refuses the writes of the guest that runs on '
                            '%s' % (self.path, self.guest.name))

    def _copied(self, block):
        """Return what a write that waits brings back of a lost block.

        It was read from the old home's disk before that lost it, and so is
        newer than what is there.
        """
        return {value for value in self.possible[block] & {
            write.copied[block] for write in [self.write, *self.ghosts]
            if write and write.copied and block in write.copied}
            if _number(value) > _number(self.last[block])}

    def _expected(self, block):
        """Return what a block may be now."""
        return {self.last[block]} | {
            write.value for write in [self.write, *self.ghosts]
            if write and write.block == block}

    # Things go wrong

    @contextlib.contextmanager
    def fault(self, fault):
        """Do something that may be cut off.

        :param fault: None, or (number of the step, 'kill' or 'power')
        """
        number, kind = fault or (None, None)
        self.cloud.steps.killed_on = None
        self.cloud.steps.start(number, killed=True, power=kind == 'power')
        try:
            yield
            self.cloud.settle()
        except REFUSALS as refused:
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
        self.take_answers()
        self.check()

    def cut_power(self, node):
        """All that runs on a node is gone, and what no disk has."""
        node.reboot()
        if self.guest is node:
            if self.write:
                self.possible[self.write.block].add(self.write.value)
            self.guest = self.write = None
        if self.old_guest and self.old_guest[0] is node:
            self.old_guest = None
        self._look_what_is_left()
        self.check()

    def _look_what_is_left(self):
        for block, value in enumerate(self.content('now')):
            if value not in self.possible[block] | self._expected(block):
                raise Violation('after a power cut block %d is %s' % (
                    block, value))
            self.last[block] = value
            self.possible[block].add(value)

    def start(self, node, fault=None):
        """Start a node's service."""
        with self.fault(fault):
            node.start()
            self.cloud.settle()

    # What the guest does

    def open(self, node, path):
        self.guest, self.path = node, path
        node.kernel.get(path).opened += 1

    def close_old(self):
        """The old node lets go of the volume, if the guest ran there."""
        if self.old_guest:
            node, path = self.old_guest
            device = node.kernel.get(path)
            if device:
                device.opened -= 1
            self.old_guest = None

    def stop_guest(self):
        self.close_old()
        if self.guest:
            self.old_guest = self.guest, self.path
            self.close_old()
        if self.write:
            # Whoever kills a process cannot take its requests back.
            self.ghosts.append(self.write)
        self.guest = self.write = None

    def begin_write(self, block):
        self.number += 1
        value = 'write %d' % self.number
        # It may be done before it is known to be.
        self.write = machine.Write(self.path, block, value)
        self.write = self.guest.kernel.begin_write(self.path, block, value)
        self.take_answers()

    def take_answers(self):
        """See whether the guest's write is over, and those from before."""
        for ghost in list(self.ghosts):
            if ghost.done or ghost.failed:
                self.ghosts.remove(ghost)
            if ghost.done:
                self._acknowledged(ghost)
        write = self.write
        if write and write.done:
            self.write = None
            self._acknowledged(write)
        elif write and write.failed:
            self.write = None

    def _acknowledged(self, write):
        self.last[write.block] = write.value
        self.possible[write.block].add(write.value)

    def flush(self):
        """What was acknowledged before has to stay from now on."""
        try:
            self.guest.kernel.flush(self.path)
        except (machine.Wait, OSError):
            return
        self.possible = [{value} for value in self.last]

    def read(self, block):
        """What the guest reads has to be what it wrote."""
        try:
            value = self.guest.kernel.read(self.path, block)
        except (machine.Wait, OSError):
            return
        if value not in self._expected(block):
            raise Violation('block %d is read as %s instead of %s' % (
                block, value, self.last[block]))

    # What users do

    def home(self):
        row = self.cloud.row(self.volume_id)
        return self.cloud.by_host[records.backend_of(row)]

    def attach(self, node, fault=None):
        """Attach the volume; the guest starts there, or may move there."""
        record = self.cloud.database.attach(self.cloud.new_id(),
                                            self.volume_id)
        self.attached[node] = record
        path = self.connect(node, fault)
        if not path or not node.kernel.get(path):
            self.drop(node)
            return
        record.connector, record.attach_status = node.connector, 'attached'
        if self.guest is None and not self.old_guest:
            self.open(node, path)
        record.path = path

    def connect(self, node, fault=None):
        """Ask the volume's home for a path on a node; None if refused."""
        home, paths = self.home(), []
        if home.down:
            return None
        with self.fault(fault):
            row = self.cloud.row(self.volume_id)
            with self.cloud.on(home):
                home.driver.create_export(self.cloud.context, row,
                                          node.connector)
                data = home.driver.initialize_connection(row, node.connector)
                paths.append(data['data']['device_path'])
        return paths[0] if paths else None

    def drop(self, node):
        """Nova gives an attachment up that could not be made."""
        self.cloud.database.attachments.pop(self.attached.pop(node).id)

    def move_guest(self, node):
        """The guest goes on at the other node; here it is paused."""
        self.old_guest = self.guest, self.path
        self.open(node, self.attached[node].path)

    def detach(self, node, fault=None):
        """Delete an attachment; its guest has let go, or must now."""
        if self.guest is node:
            self.stop_guest()
        elif self.old_guest and self.old_guest[0] is node:
            self.close_old()
        record = self.attached[node]
        home = self.home()
        if record.connector and not home.down:
            with self.fault(fault), self.cloud.on(home):
                home.driver.terminate_connection(
                    self.cloud.row(self.volume_id), record.connector)
        self.drop(node)

    # Time

    def look(self, node, fault=None):
        with self.fault(fault):
            self.cloud.pass_time(100)
            node.look()

    def hydrate(self, node, region):
        for name in node.clones():
            if node.kernel.devices[name].clone.hydration:
                with contextlib.suppress(machine.Wait, OSError):
                    node.kernel.copy(name, region)
        self.check()

    # The end

    def converge(self):
        """Everything is well again: all goes on, and nothing is left."""
        self.mend()
        self._go_on()
        if self.write or self.ghosts:
            raise Violation('a write waits although all is well')
        for node in list(self.attached):
            self.detach(node)
        self._go_on()
        left = self.cloud.leftovers()
        if left:
            raise Violation('left over: %s' % '; '.join(left))
        self.check()
        self._use()

    def mend(self):
        """Let all that has failed work again."""
        for node in self.nodes:
            node.kernel.metadata_fails = False
            if node.kernel.sick():
                # A clone whose metadata has failed needs a new start.
                self.cut_power(node)
        for node in self.nodes:
            if node.down:
                self.start(node)

    def _use(self):
        """A new guest can do all that a guest can do."""
        node = self.nodes[self.number % len(self.nodes)]
        self.attach(node)
        if self.guest is not node:
            raise Violation('the volume cannot be used on %s: %s' % (
                node.name, self.refused))
        for block in range(machine.LENGTH):
            self.begin_write(block)
        self.flush()
        if self.possible != [{'write %d' % (self.number - back)}
                             for back in reversed(range(machine.LENGTH))]:
            raise Violation('writes fail: %s' % self.possible)
        self.detach(self.guest)
        self._go_on()

    def delete(self):
        """Delete the volume; nothing at all is left."""
        home, row = self.home(), self.cloud.row(self.volume_id)
        self.cloud.steps.observe = lambda: None
        with self.cloud.on(home):
            home.driver.delete_volume(row)
        self.cloud.settle()
        del self.cloud.database.rows[self.volume_id]
        left = self.cloud.leftovers()
        if left:
            raise Violation('left over: %s' % '; '.join(left))

    def _is_quiet(self):
        """Whether nobody has anything to do for any move."""
        return not (self.cloud.placeholders() or any(
            node.clones() or node.target.exports or node.kernel.disks
            for node in self.nodes))

    def _go_on(self):
        for _ in range(6):
            if not self.write and not self.ghosts and self._is_quiet():
                break
            for node in self.nodes:
                for region in range(machine.REGIONS):
                    self.hydrate(node, region)
                self.look(node)
        self.take_answers()
