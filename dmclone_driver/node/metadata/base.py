# SPDX-License-Identifier: Apache-2.0
"""The interface of a metadata store."""

import abc
from typing import NoReturn

from cinder.volume import configuration as cinder_configuration

from dmclone_driver import exception
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import KiB
from dmclone_driver.node.quantities import Sectors


class MetadataStore(abc.ABC):
    """Creates, finds and removes the metadata device of a clone."""

    #: The value of dmclone_metadata_backend that selects it.
    kind: str

    #: The smallest region size to choose. A commit costs flushes, on
    #: a disk twice as many as in memory. With 64 KiB most writes next to an
    #: earlier one need no commit.
    smallest_region = KiB(64)

    #: Whether the metadata survives a power cut.
    persistent = True

    def __init__(self,
                 configuration: cinder_configuration.Configuration) -> None:
        self.configuration = configuration

    def refuse(self, option: str, reason: str) -> NoReturn:
        """Refuse to start the backend because of an option.

        :raises: BadConfiguration
        """
        raise exception.BadConfiguration(
            option=option, value=self.configuration.safe_get(option),
            section=self.configuration.config_group, reason=reason)

    @abc.abstractmethod
    def verify(self) -> None:
        """Verify that the store can be used, without a change of the node.

        :raises: BadConfiguration
        """

    def check(self) -> None:
        """Verify at start that the store can be used, and prepare it.

        :raises: BadConfiguration
        """
        self.verify()

    def give_back(self) -> None:
        """Release this store's resources of the host if they are not used.

        Called if another kind of store is configured now.
        """

    @abc.abstractmethod
    def create(self, names: Names, size: Bytes, region: Sectors,
               before: LogicalVolume | None = None) -> tuple[str, Sectors]:
        """Create the metadata device of a new clone, formatted as empty.

        Can be repeated; never zeroes metadata that a clone may have used. The
        caller tags the clone's logical volume afterwards, which says that the
        metadata is formatted, and then creates the clone.

        :param size: of the volume
        :param region: recorded with the device
        :param before: the clone's logical volume, as an earlier attempt has
            left it; without one there is no metadata
        :returns: as :meth:`find`
        :raises: NoRoomForMetadata
        """

    @abc.abstractmethod
    def find(self, names: Names) -> tuple[str, Sectors] | None:
        """Return (path, region) of a clone's metadata, or None."""

    @abc.abstractmethod
    def remove(self, names: Names) -> None:
        """Remove the metadata device; succeed if there is none."""
