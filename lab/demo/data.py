# SPDX-License-Identifier: Apache-2.0
"""Random data of a run, and its checksums computed without a volume."""

import hashlib
import os

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers import modes

MIB = 1024 * 1024
_WORDS = 'written-on-the-second-node'


class Data:
    """A cipher's stream, without repetitions and different in each run.

    :param mib: size in MiB
    :param later: offset in MiB of the one MiB that is overwritten later
    """

    def __init__(self, mib, later):
        self.mib, self.later = mib, later
        self._key = os.urandom(16)

    def write(self, path):
        """Return the command that writes the data to a device."""
        return ('openssl enc -aes-128-ctr -K %s -iv %032d -in /dev/zero '
                '2>/dev/null | head -c %dM | dd of=%s bs=1M iflag=fullblock '
                'oflag=direct conv=fsync status=none'
                % (self._key.hex(), 0, self.mib, path))

    def overwrite(self, path):
        """Return the command that overwrites one MiB, with a flush."""
        return ('yes %s | head -c 1M | dd of=%s bs=1M seek=%d '
                'iflag=fullblock oflag=direct conv=notrunc,fsync status=none'
                % (_WORDS, path, self.later))

    @staticmethod
    def read(path):
        """Return the command for a device's checksum, without caches."""
        return 'dd if=%s bs=1M iflag=direct status=none | sha256sum' % path

    def checksums(self):
        """Return the expected checksums before and after overwrite()."""
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
