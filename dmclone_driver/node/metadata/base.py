# SPDX-License-Identifier: Apache-2.0
"""The interface of a metadata store."""

import abc

from dmclone_driver import exception


class MetadataStore(abc.ABC):
    """Creates, finds and removes the metadata device of a clone."""

    #: The value of dmclone_metadata_backend that selects it.
    kind = None

    #: The smallest region size to choose, in KiB. A commit costs flushes, on
    #: a disk twice as many as in memory. With 64 KiB most writes next to an
    #: earlier one need no commit.
    smallest_region = 64

    #: Whether the metadata survives a power cut.
    persistent = True

    def __init__(self, configuration):
        self.configuration = configuration

    def refuse(self, option, reason):
        """Refuse to start the backend because of an option.

        :raises: BadConfiguration
        """
        raise exception.BadConfiguration(
            option=option, value=self.configuration.safe_get(option),
            section=self.configuration.config_group, reason=reason)

    @abc.abstractmethod
    def check(self):
        """Verify at start that the store can be used.

        :raises: BadConfiguration
        """

    def give_back(self):
        """Release this store's resources of the host if they are not used.

        Called if another kind of store is configured now.
        """

    @abc.abstractmethod
    def create(self, names, size, region):
        """Create the metadata device of a new clone, formatted as empty.

        Can be repeated until the clone is created; never zeroes metadata
        that a clone may have used.

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
        """Remove the metadata device; succeed if there is none."""
