# SPDX-License-Identifier: Apache-2.0
"""Compare a volume with the records of a guest's writer.

Runs on a node, as a program. It reads the volume's data from before the
guest's first write on stdin. See lab/templates/guest-writer.
"""

import re
import sys

SLOTS, STRIDE, FIRST, SIZE = 256, 3 << 20, 1 << 20, 4096
_RECORD = re.compile(rb'dmclone (\S+) (\d+) ')


def record(serial, number):
    """Return the bytes of a record."""
    text = b'dmclone %s %d ' % (serial.encode(), number)
    return (text * (SIZE // len(text) + 1))[:SIZE]


def place(number):
    """Return the place of a record, in bytes."""
    return FIRST + number % SLOTS * STRIDE


def number_of(block, serial, slot):
    """Return the number of the record in a slot, None if it holds none.

    :raises ValueError: if it holds a damaged or misplaced record
    """
    found = _RECORD.match(block)
    # A new volume can contain old records, also those of other volumes.
    if not found or found[1] != serial.encode():
        return None
    number = int(found[2])
    if block != record(serial, number) or number % SLOTS != slot:
        raise ValueError('slot %d holds %r...' % (slot, block[:64]))
    return number


def missing(acknowledged, slot, number):
    """Return whether a record that was durable is missing from its slot.

    :param acknowledged: number of the newest durable record
    :param number: of the record in the slot, None if there is none
    """
    # The newest record of this slot up to `acknowledged`.
    expected = acknowledged - (acknowledged - slot) % SLOTS
    return expected > 0 and (number is None or number < expected)


def compare(disk, original, serial, acknowledged):
    """Yield one sentence per difference of a disk.

    Its records have to be a prefix of those that were written: each is
    written when the one before is durable.

    :param disk: file with the volume
    :param original: file with the data from before; may be shorter
    """
    numbers = {}
    for slot in range(SLOTS):
        disk.seek(place(slot))
        try:
            numbers[slot] = number_of(disk.read(SIZE), serial, slot)
        except ValueError as error:
            yield str(error)
    newest = max((number for number in numbers.values() if number), default=0)
    # A write can be in flight, and the last lines of a console can be lost.
    expected = max(newest, acknowledged)
    for slot, number in numbers.items():
        if missing(expected, slot, number):
            yield 'slot %d holds record %s, record %d was %s' % (
                slot, number, expected, 'found' if expected == newest else
                'acknowledged')
    if newest < acknowledged:
        yield 'the newest record is %d' % newest
    yield from _compare_rest(disk, original)


def _compare_rest(disk, original):
    slots = {place(slot) for slot in range(SLOTS)}
    at = 0
    disk.seek(0)
    while expected := original.read(SIZE):
        found = disk.read(len(expected))
        if found != expected and not (at in slots and _RECORD.match(found)):
            yield 'the block at byte %d has changed' % at
        at += len(expected)


def main():
    path, serial, acknowledged = sys.argv[1:]
    with open(path, 'rb') as disk:
        wrong = list(compare(disk, sys.stdin.buffer, serial,
                             int(acknowledged)))
    print('\n'.join(wrong[:20]))
    return bool(wrong)


if __name__ == '__main__':
    sys.exit(main())
