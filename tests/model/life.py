# SPDX-License-Identifier: Apache-2.0
"""The life of one volume: its guest, its users, and acknowledged writes."""

from cinder import exception as cinder_exception
from oslo_concurrency import processutils
import oslo_messaging as messaging

from dmclone_driver.move import lookups
from tests.model import machine

REFUSALS = (cinder_exception.CinderException, OSError,
            processutils.ProcessExecutionError,
            messaging.MessagingException)


def _number(value):
    """Return the number of the write of a block, 0 for original content."""
    kind, number = value.split()
    return int(number) if kind == 'write' else 0


class Violation(AssertionError):
    """An invariant does not hold."""


class Life:
    """A volume, its guest, and the acknowledged writes.

    A guest writes numbered blocks. The acknowledged writes are recorded, and
    after each step the content of the volume is read from the disks and
    compared.
    """

    def __init__(self, history, volume_id):
        """Begin with the present content of a volume.

        :param history: the :class:`tests.model.history.History` that it is
            part of
        """
        self.history = history
        self.cloud = history.cloud
        self.volume_id = volume_id
        #: The node that the guest runs on, and its path there.
        self.guest = self.path = None
        #: The guest before a migration until it closes: (node, path).
        self.old_guest = None
        #: Writes of killed guests, which may still be done.
        self.late_writes = []
        #: Attachments: {node: record}.
        self.attached = {}
        self.write = None
        #: What Cinder copies to the volume: {block: content}.
        self.copied = {}
        #: Of a revert under way: the name id before it, and the content that
        #: the volume has as a whole once it has another name id; or None.
        self.reverted = None
        self.accept()

    def accept(self):
        """Accept the present content of the volume."""
        content = self.content('now')
        #: Per block: the last content, and the possible contents after a power
        #: cut.
        self.last = list(content)
        self.possible = [{value} for value in content]

    # Checks after each step

    def content(self, when):
        row = self.cloud.database.rows[self.volume_id]
        return self.cloud.content(row, when)

    def compare(self):
        """Compare the content with what was acknowledged.

        :raises: Violation
        """
        self._look_at_guest()
        self._take_reverted()
        now, safe = self.content('now'), self.content('safe')
        for block in range(machine.LENGTH):
            # What is here is the last content nearly always.
            if now[block] != self.last[block]:
                if now[block] in self._copied(block):
                    self.last[block] = now[block]
                if now[block] not in self.expected(block):
                    raise Violation('block %d is %s instead of %s' % (
                        block, now[block], self.last[block]))
            if safe[block] != self.last[block] and safe[block] not in (
                    self.possible[block] | self.expected(block)):
                raise Violation('a power cut would make block %d %s' % (
                    block, safe[block]))

    def _take_reverted(self):
        """Expect the snapshot, whole and safe, once a revert has a result."""
        row = self.cloud.database.rows[self.volume_id]
        if self.reverted and self.reverted[0] != row.name_id:
            self.last = list(self.reverted[1])
            self.possible = [{value} for value in self.last]
            self.reverted = None

    def _look_at_guest(self):
        """Check that the handle of a running guest is writable.

        A guest in the middle of a migration is not checked: it may go back.
        """
        device = self.guest and self.guest.kernel.get(self.path)
        if device and device.sealed and not self.old_guest:
            raise Violation('%s refuses the writes of the guest that runs on '
                            '%s' % (self.path, self.guest.name))

    def _copied(self, block):
        """Return newer content of a block that a pending write has copied.

        It was read from the old home's disk before that disk lost it, and is
        newer than the block on that disk.
        """
        return {value for value in self.possible[block] & {
            write.copied[block] for write in [self.write, *self.late_writes]
            if write and write.copied and block in write.copied}
            if _number(value) > _number(self.last[block])}

    def expected(self, block):
        """Return the possible contents of a block now."""
        return {self.last[block]} | {
            self.copied.get(block, self.last[block])} | {
            write.value for write in [self.write, *self.late_writes]
            if write and write.block == block}

    def lose_power(self, node):
        """End the guest of a node whose power is cut."""
        # What was done before may be lost now.
        self.take_answers()
        if self.guest is node:
            if self.write:
                self.possible[self.write.block].add(self.write.value)
            self.guest = self.write = None
        if self.old_guest and self.old_guest[0] is node:
            self.old_guest = None

    def check_after_loss(self):
        """Check and record the content after unflushed data was lost."""
        for block, value in enumerate(self.content('now')):
            if value not in self.possible[block] | self.expected(block):
                raise Violation('after a power cut block %d is %s' % (
                    block, value))
            self.last[block] = value
            self.possible[block].add(value)

    # The guest

    def open(self, node, path):
        self.guest, self.path = node, path
        node.kernel.get(path).opened += 1

    def close_old(self):
        """Close the volume on the node where the guest ran before."""
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
            # The requests of a killed process cannot be cancelled.
            self.late_writes.append(self.write)
        self.guest = self.write = None

    def begin_write(self, block):
        self.history.number += 1
        value = 'write %d' % self.history.number
        # A step of begin_write may already observe the write as done.
        self.write = machine.Write(self.path, block, value)
        self.write = self.guest.kernel.begin_write(self.path, block, value)
        self.take_answers()

    def take_answers(self):
        """Record whether the pending writes have succeeded or failed."""
        for late in list(self.late_writes):
            if late.done or late.failed:
                self.late_writes.remove(late)
            # Nobody was told of it. On a kernel its process would keep the
            # source open until then, so that nothing is copied before.
            if late.done:
                self.possible[late.block].add(late.value)
                if self.content('now')[late.block] == late.value:
                    self.last[late.block] = late.value
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
        """Flush as the guest: acknowledged writes have to be safe then."""
        try:
            self.guest.kernel.flush(self.path)
        except (machine.Wait, OSError):
            return
        self.possible = [{value} for value in self.last]

    def read(self, block):
        """Read as the guest, and compare with the acknowledged writes."""
        try:
            value = self.guest.kernel.read(self.path, block)
        except (machine.Wait, OSError):
            return
        if value not in self.expected(block):
            raise Violation('block %d is read as %s instead of %s' % (
                block, value, self.last[block]))

    # Users

    def home(self):
        row = self.cloud.row(self.volume_id)
        return self.cloud.by_host[lookups.backend_of(row)]

    def attach(self, node, fault=None):
        """Attach the volume; the guest starts there, or can migrate there."""
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
        """Request the volume's path on a node; returns None if refused."""
        home, paths = self.home(), []
        if home.down:
            return None
        with self.history.fault(fault):
            row = self.cloud.row(self.volume_id)
            with self.cloud.on(home):
                home.driver.create_export(self.cloud.context, row,
                                          node.connector)
                data = home.driver.initialize_connection(row, node.connector)
                paths.append(data['data']['device_path'])
        return paths[0] if paths else None

    def migrate(self, node, fault=None):
        """Migrate the volume by Cinder's API, as an administrator."""
        home = self.home()
        if home.down:
            return
        database = self.cloud.database
        database.change(self.volume_id, migration_status='migrating')
        with self.history.fault(fault), self.cloud.on(home):
            home.driver.migrate_volume(
                self.cloud.context, self.cloud.row(self.volume_id),
                {'host': node.pool})
        # Cinder does, or the administrator if Cinder's process has ended.
        database.change(self.volume_id, migration_status=None)

    def drop(self, node):
        """Delete the record of an attachment, as Nova does after a failure."""
        self.cloud.database.attachments.pop(self.attached.pop(node).id)

    def move_guest(self, node):
        """Continue the guest on another node; it is paused on the old one."""
        self.old_guest = self.guest, self.path
        self.open(node, self.attached[node].path)

    def detach(self, node, fault=None):
        """Delete an attachment; its guest is stopped if it still runs."""
        if self.guest is node:
            self.stop_guest()
        elif self.old_guest and self.old_guest[0] is node:
            self.close_old()
        record = self.attached[node]
        home = self.home()
        if record.connector and not home.down:
            with self.history.fault(fault), self.cloud.on(home):
                home.driver.terminate_connection(
                    self.cloud.row(self.volume_id), record.connector)
        self.drop(node)

    # The end

    def use(self):
        """Check that a new guest can use the volume."""
        nodes = self.history.nodes
        node = nodes[self.history.number % len(nodes)]
        self.attach(node)
        if self.guest is not node:
            raise Violation('the volume cannot be used on %s: %s' % (
                node.name, self.history.refused))
        for block in range(machine.LENGTH):
            self.begin_write(block)
        self.flush()
        if self.possible != [{'write %d' % (self.history.number - back)}
                             for back in reversed(range(machine.LENGTH))]:
            raise Violation('writes fail: %s' % self.possible)
        self.detach(self.guest)
        self.history.settle()
