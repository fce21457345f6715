# SPDX-License-Identifier: Apache-2.0
"""What the rest of the driver needs from a place for metadata."""

import abc


class MetadataStore(abc.ABC):
    """Makes, finds and removes the metadata device of a clone."""

    #: Whether what it holds survives a power cut.
    persistent = True

    @abc.abstractmethod
    def check(self):
        """Verify at start that it can be used.

        :raises: BadConfiguration
        """

    @abc.abstractmethod
    def create(self, names, size, region):
        """Make the metadata device of a new clone, formatted to be empty.

        Can be repeated until the clone is made; never zeroes metadata that
        a clone may have used.

        :param names: :class:`dmclone_driver.names.Names`
        :param size: of the volume, in bytes
        :param region: sectors, recorded with the device
        :returns: as :meth:`find`
        """

    @abc.abstractmethod
    def find(self, names):
        """Return (path, region in sectors) of a clone's metadata, or None."""

    @abc.abstractmethod
    def remove(self, names):
        """Remove the metadata device; succeeds if there is none."""
