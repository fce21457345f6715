# SPDX-License-Identifier: Apache-2.0
"""The comparison of the live tests finds wrong data of a volume."""

import io
import unittest

from lab.common import records

SERIAL = '0123abcd'


def _disk(*numbers, original=b''):
    disk = io.BytesIO(original)
    for number in numbers:
        disk.seek(records.FIRST + number % records.SLOTS * records.STRIDE)
        disk.write(records.record(SERIAL, number))
    return disk


class RecordsTest(unittest.TestCase):
    """Each kind of wrong data is found, without false findings."""

    def wrong(self, disk, acknowledged, original=b''):
        return list(records.compare(disk, io.BytesIO(original), SERIAL,
                                    acknowledged))

    def test_all_there(self):
        self.assertEqual([], self.wrong(_disk(1, 2, 3), 3))
        self.assertEqual([], self.wrong(_disk(*range(1, 600)), 599))

    def test_one_under_way(self):
        self.assertEqual([], self.wrong(_disk(1, 2, 3, 4), 3))

    def test_no_prefix(self):
        """One that was not acknowledged is newer than a lost one."""
        self.assertEqual(1, len(self.wrong(_disk(1, 2, 3, 5), 3)))
        self.assertEqual(1, len(self.wrong(_disk(2), 0)))

    def test_last_one_lost(self):
        self.assertEqual(2, len(self.wrong(_disk(1, 2), 3)))

    def test_one_in_the_middle_lost(self):
        self.assertEqual(1, len(self.wrong(_disk(1, 3), 3)))

    def test_older_one_instead(self):
        newest = records.SLOTS + 2
        there = [n for n in range(1, newest + 1) if n != records.SLOTS + 1]
        self.assertEqual(1, len(self.wrong(_disk(*there), newest)))

    def test_torn_record(self):
        disk = _disk(1, 2, 3)
        disk.seek(records.FIRST + 2 * records.STRIDE + 2000)
        disk.write(b'x')
        self.assertEqual(1, len(self.wrong(disk, 3)))

    def test_record_of_another_volume(self):
        disk = _disk(1, 2)
        disk.seek(records.FIRST + 2 * records.STRIDE)
        disk.write(records.record('other', 2))
        self.assertEqual(2, len(self.wrong(disk, 2)))
        self.assertEqual([], self.wrong(disk, 1))

    def test_original_data(self):
        original = bytes(range(256)) * 8192       # two MiB
        disk = _disk(*range(1, 257), original=original)
        self.assertEqual([], self.wrong(disk, 0, original))
        disk.seek(5000)
        disk.write(b'??')
        self.assertEqual(['the block at byte 4096 has changed'],
                         self.wrong(disk, 0, original))
