# SPDX-License-Identifier: Apache-2.0
"""What the rest of the driver needs from a place for metadata."""

import abc

from dmclone_driver import exception


class MetadataStore(abc.ABC):
    """Makes, finds and removes the metadata device of a clone."""

    #: The value of dmclone_metadata_backend that asks for it.
    kind = None

    #: The smallest regions to choose, in KiB. A commit costs flushes, on a
    #: disk twice as many as in memory: with 64 KiB most writes beside an
    #: earlier one go without.
    smallest_region = 64

    #: Whether what it holds survives a power cut.
    persistent = True

    def __init__(self, configuration):
        self.configuration = configuration

    def refuse(self, option, reason):
        """Say which option keeps the backend from starting.

        :raises: BadConfiguration
        """
        raise exception.BadConfiguration(
            option=option, value=self.configuration.safe_get(option),
            section=self.configuration.config_group, reason=reason)

    @abc.abstractmethod
    def check(self):
        """Verify at start that it can be used.

        :raises: BadConfiguration
        """

    def give_back(self):
        """Return what the host lent, if nobody uses it.

        Called where another kind is configured now.
        """

    @abc.abstractmethod
    def create(self, names, size, region):
        """Make the metadata device of a new clone, formatted to be empty.

        Can be repeated until the clone is made; never zeroes metadata that
        a clone may have used.

        :param names: :class:`dmclone_driver.node.names.Names`
        :param size: of the volume, in bytes
        :param region: sectors, recorded with the device
        :returns: as :meth:`find`
        :raises: NoRoomForMetadata
        """

    @abc.abstractmethod
    def find(self, names):
        """Return (path, region in sectors) of a clone's metadata, or None."""

    @abc.abstractmethod
    def remove(self, names):
        """Remove the metadata device; succeeds if there is none."""
