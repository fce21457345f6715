# SPDX-License-Identifier: Apache-2.0
"""Data of a run's own, and its checksum as computed without any volume."""

import hashlib
import os

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers import modes

MIB = 1024 * 1024
_WORDS = 'written-on-the-second-node'


class Data:
    """A cipher's stream: repeats nowhere, and is another in each run.

    :param mib: how much
    :param later: where one MiB is overwritten later, in MiB
    """

    def __init__(self, mib, later):
        self.mib, self.later = mib, later
        self._key = os.urandom(16)

    def write(self, path):
        """The command that writes all of it to a device."""
        return ('openssl enc -aes-128-ctr -K %s -iv %032d -in /dev/zero '
                '2>/dev/null | head -c %dM | dd of=%s bs=1M iflag=fullblock '
                'oflag=direct conv=fsync status=none'
                % (self._key.hex(), 0, self.mib, path))

    def overwrite(self, path):
        """The command that overwrites the one MiB, durably."""
        return ('yes %s | head -c 1M | dd of=%s bs=1M seek=%d '
                'iflag=fullblock oflag=direct conv=notrunc,fsync status=none'
                % (_WORDS, path, self.later))

    @staticmethod
    def read(path):
        """The command that computes a device's checksum, past all caches."""
        return 'dd if=%s bs=1M iflag=direct status=none | sha256sum' % path

    def checksums(self):
        """What the checksum has to be, before and after overwrite()."""
        stream = Cipher(algorithms.AES(self._key),
                        modes.CTR(bytes(16))).encryptor()
        before, after = hashlib.sha256(), hashlib.sha256()
        line = _WORDS.encode() + b'\n'
        later = (line * (MIB // len(line) + 1))[:MIB]
        for number in range(self.mib):
            block = stream.update(bytes(MIB))
            before.update(block)
            after.update(later if number == self.later else block)
        return before.hexdigest(), after.hexdigest()
