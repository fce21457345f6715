# SPDX-License-Identifier: Apache-2.0
"""Building a logical volume, and the devices and session of its clone.

A new clone is passive: its gate is closed. What a reboot has removed is built
again with the same metadata, and connected later.
"""

import dataclasses

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move import room
from dmclone_driver.move import threads
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node.metadata import sizing
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

# Bytes of the first block of a thin volume that are written.
_FIRST = Bytes(4096)

# Bytes of an imported disk that are not the volume's.
_MARGINS = 2 * devices.MARGIN * table.SECTOR


class Builder:
    """Builds clones on this node; each is named after its placeholder."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def build(self, names: Names, size: Bytes, location: str, auth: str,
              allocated: Bytes | None = None) -> None:
        """Build a passive clone of an exported source.

        :param size: of the source, in bytes
        :param location: provider_location of the source's export
        :param auth: provider_auth of the source's export
        :param allocated: see Destination.prepare
        """
        # Both take seconds, and neither needs the other.
        with threads.beside(self._backend.initiator.connect, location,
                            auth) as connected:
            lv, before = self._create_logical_volume(names, size)
            if lv.size != size:
                raise self._other_size(lv, size)
            lv, path, region = self._create_metadata(
                names, lv, before, *([] if allocated is None or not lv.thin
                                     else [logical_volumes.ALLOCATED_TAG +
                                           str(allocated)]))
            disk = connected()
        steps.reached(Step.CONNECTED, names.name_id)
        self._compare(names, lv, disk)
        self._build_passive(names, lv, path, region, disk)

    def build_copy(self, names: Names, placeholder: Placeholder,
                   size: str | None) -> None:
        """Build a passive clone of a snapshot, which may be smaller.

        :param placeholder: of the exported source
        :param size: of the new volume, as LVM's commands take it; None if it
            is the snapshot's
        """
        location, auth = self._location(placeholder)
        disk = self._backend.initiator.connect(location, auth)
        steps.reached(Step.CONNECTED, names.name_id)
        source = Bytes(block.size(disk) - _MARGINS)
        lv, before = self._create_logical_volume(names, size or source)
        if lv.size < source:
            raise self._other_size(lv, source)
        lv, path, region = self._create_metadata(
            names, lv, before, *([] if lv.size == source else [
                logical_volumes.CLONED_TAG + str(source)]))
        self._compare(names, lv, disk)
        self._build_passive(names, lv, path, region, disk)

    def rebuild(self, names: Names, passive: bool = False) -> None:
        """Recreate the missing devices of a clone, with its own metadata.

        Existing devices are kept. The hydrated regions are served at once.
        The source is connected later, see :meth:`reconnect`.

        :param passive: whether to keep the gate closed
        :raises: MetadataUnusable
        """
        local = LocalVolume(names)
        if local.exists():
            if local.is_clone():
                # A crash may have prevented the driver from doing so.
                local.forbid_discards()
            return
        lv = self._backend.logical_volume(names)
        if lv is None:
            # The volume's home is lost, and its row is on this node only
            # for the deletion.
            LOG.error('There is no logical volume of %s on this node.', names)
            return
        # Without the tag it was never a clone, or is none any longer.
        found = self._backend.metadata.find(names) if lv.clone else None
        if found is None:
            raise exception.MetadataUnusable(
                names=names, lv=lv.full_name, reason=_('it is missing'))
        path, region = found
        local.build_clone(lv, path, region, self._backend.tuning,
                          passive=passive)

    def reconnect(self, context: cinder_context.RequestContext, names: Names,
                  placeholder: Placeholder, anew: bool = False) -> None:
        """Connect a clone whose source shim has no disk.

        :param placeholder: which points to the source
        :param anew: whether it may have one, of another source that shows
            the same
        :raises: RequestsWait: then it keeps that
        """
        local = LocalVolume(names)
        self._backend.client.export_source(context, placeholder.backend,
                                           placeholder.id)
        # Without the lock a concurrent deletion could leave the session.
        with self._backend.lock_owner(placeholder):
            if local.is_connected() and not anew:
                return
            location, auth = self._location(placeholder)
            disk = self._backend.initiator.connect(location, auth)
            lv = self._backend.logical_volume(names)
            # A clone's gate lies on it.
            assert lv is not None
            self._compare(names, lv, disk)
            local.connect_source(disk, table.sectors(lv.cloned), anew)

    @staticmethod
    def _location(placeholder: Placeholder) -> tuple[str, str]:
        """Return where a source is exported, and how to log in there.

        :raises: ReadLagsBehind
        """
        location = placeholder.provider_location
        auth = placeholder.provider_auth
        if not (location and auth):
            # The node has exported it, and written that to the row.
            raise exception.ReadLagsBehind(volume=placeholder.volume_id)
        return location, auth

    def _create_logical_volume(
            self, names: Names, size: Bytes | str) -> tuple[
                logical_volumes.LogicalVolume,
                logical_volumes.LogicalVolume | None]:
        """Create a clone's logical volume, or find that of an earlier attempt.

        :param size: is rounded up to whole extents
        :returns: it, and it again if it was there before, or else None
        """
        group, name = self._backend.group.vg_name, names.volume
        pool = thin_pools.name_of(group) if self._backend.thin else ''
        try:
            logical_volumes.create(group, name, size, pool=pool)
        except lvm.Exists:
            # It is looked for only then, since that is one more process.
            found = self._backend.logical_volume(names)
            if found is None:
                raise
            return found, found
        lv = logical_volumes.LogicalVolume(group, name, Bytes(0), active=True,
                                           pool=pool)
        return dataclasses.replace(lv, size=block.size(lv.path)), None

    def _create_metadata(self, names: Names,
                         lv: logical_volumes.LogicalVolume,
                         before: logical_volumes.LogicalVolume | None,
                         *tags: str) -> tuple[logical_volumes.LogicalVolume,
                                              str, Sectors]:
        """Create a clone's metadata, and tag the clone in one command.

        What a thin volume has not allocated reads zeros. So regions of which
        the source has nothing, either, need not be copied: see :mod:`marks`.

        :param before: the logical volume as it was found, None if it is new
        :param tags: which the clone needs, too
        :returns: the logical volume with its tags, the path of the metadata,
            and the size of a region
        """
        steps.reached(Step.ALLOCATED, names.name_id)
        lv = dataclasses.replace(lv, tags=lv.tags.union(tags))
        metadata, size = self._backend.metadata, lv.cloned
        region = sizing.region(
            size, self._backend.configuration.dmclone_region_size,
            metadata.smallest_region)
        path, region = metadata.create(names, size, region, before)
        if lv.thin and not (before and before.tags):
            self._allocate_first_block(names, lv)
        # Only now: the tag says that the metadata is formatted.
        added = [logical_volumes.METADATA_TAG + path.removeprefix('/dev/'),
                 *([logical_volumes.MARKABLE_TAG] if lv.thin else []), *tags]
        logical_volumes.tag(lv, *added)
        if lv.thin:
            room.refuse_overfull(self._backend, names)
        steps.reached(Step.FORMATTED, names.name_id)
        return dataclasses.replace(lv, tags=lv.tags.union(added)), path, region

    def _allocate_first_block(self, names: Names,
                              lv: logical_volumes.LogicalVolume) -> None:
        """Allocate the block of a thin volume that gets its flushes.

        In a full pool they would fail without it (__process_bio_read_only in
        drivers/md/dm-thin.c), and a commit of the clone's metadata with them,
        after which the clone is read-only.

        :param lv: without tags: no volume has used it yet
        :raises: NoRoomInPool, OSError
        """
        try:
            block.zero_start(lv.path, _FIRST)
        except OSError:
            room.refuse_overfull(self._backend, names)
            raise

    def _build_passive(self, names: Names, lv: logical_volumes.LogicalVolume,
                       path: str, region: Sectors, disk: str) -> None:
        LocalVolume(names).build_clone(lv, path, region, self._backend.tuning,
                                       disk=disk, passive=True)
        steps.reached(Step.PASSIVE, names.name_id)

    @staticmethod
    def _other_size(lv: logical_volumes.LogicalVolume, there: Bytes
                    ) -> cinder_exception.VolumeDriverException:
        return cinder_exception.VolumeDriverException(message=_(
            "logical volume %(lv)s has %(here)d bytes, its source "
            "%(there)d: the volume groups' extent sizes differ") % {
                'lv': lv.name, 'here': lv.size, 'there': there})

    @staticmethod
    def _compare(names: Names, lv: logical_volumes.LogicalVolume,
                 disk: str) -> None:
        """Refuse a disk whose size or block size is not the volume's."""
        if block.size(disk) != lv.cloned + _MARGINS:
            raise cinder_exception.VolumeDriverException(message=_(
                'the imported disk of %(names)s has %(disk)d bytes instead of '
                '%(expected)d') % {
                    'names': names, 'disk': block.size(disk),
                    'expected': lv.cloned + _MARGINS})
        here, there = (block.logical_block_size(path)
                       for path in (lv.path, disk))
        if here != there:
            raise cinder_exception.VolumeDriverException(message=_(
                'blocks have %(here)d bytes on this node and %(there)d on '
                'the source') % {'here': here, 'there': there})
