# SPDX-License-Identifier: Apache-2.0
"""What the sources on this node have not allocated, for nodes that copy them.

A source is sealed before its map is read, and never changes afterwards. So a
map that was read once stays valid, and one that is read again is the same.
"""

import collections
import collections.abc
import threading
from typing import Any

from cinder import context as cinder_context
from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import reserve
from dmclone_driver.move.source import Source
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import lvm
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import thin_maps
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import thin

LOG = logging.getLogger(__name__)

# Seconds that reading a map may take.
TIMEOUT = 60

# The most ranges of one answer, of less than 20 bytes each, and the number of
# maps that are remembered.
PAGE, KEPT = 10000, 4


#: One program reads at a time. Others wait here, and not in the privileged
#: daemon: its threads are few, and all that is done as root needs one.
turn = threading.Lock()


def read(lv: LogicalVolume) -> thin_maps.ThinMap:
    """Return what a thin volume has allocated at this moment.

    :raises: UnusableMap, ValueError, ProcessExecutionError
    """
    device = logical_volumes.thin_id(lv)
    if not turn.acquire(timeout=TIMEOUT):
        raise thin_maps.UnusableMap(_('reading others takes too long'))
    try:
        metadata = lvm.device(lv.group, lv.pool + '_tmeta')
        text = thin.dump(thin_pools.device_of(lv.group, lv.pool),
                         '%s/%s' % (sysfs.MAPPER, metadata), device, TIMEOUT)
    finally:
        turn.release()
    return thin_maps.parse(text, device)


class Maps:
    """Maps of the sources on this node."""

    def __init__(self, backend: Backend, source: Source) -> None:
        self._backend = backend
        self._source = source
        #: Pages of the last maps, by what they were asked for.
        self._known: collections.OrderedDict[
            tuple[str, int, int], list[str]] = collections.OrderedDict()
        self._lock = threading.Lock()

    def unallocated(self, context: cinder_context.RequestContext,
                    placeholder_id: str, length: int, region: int,
                    page: int) -> dict[str, Any]:
        """Return regions of which a source has nothing allocated.

        Takes no lock, as :meth:`Source.seal`.

        :param length: of the clone, in sectors
        :param region: size of its regions, in sectors
        :param page: the part of the answer, from 0
        :returns: ``{'ranges': '0+16,40+2', 'pages': 1, 'why': ''}``, with the
            first region and number of each range; if there is no map,
            ``why`` says why, and there is no page
        """
        key = placeholder_id, length, region
        with self._lock:
            pages = self._known.get(key)
        if pages is None:
            try:
                pages = list(thin_maps.pages(thin_maps.unallocated(
                    self._read(context, placeholder_id, Sectors(length)),
                    Sectors(length), Sectors(region)), PAGE))
            except (thin_maps.UnusableMap, ValueError, OSError,
                    processutils.ProcessExecutionError) as error:
                return {'ranges': '', 'pages': 0,
                        'why': exception.text_of(error)}
            with self._lock:
                self._known[key] = pages
                while len(self._known) > KEPT:
                    self._known.popitem(last=False)
        return {'ranges': pages[page] if page < len(pages) else '',
                'pages': len(pages), 'why': ''}

    def _read(self, context: cinder_context.RequestContext,
              placeholder_id: str, length: Sectors) -> thin_maps.ThinMap:
        """Return the map of a source.

        :raises: UnusableMap, ValueError, ProcessExecutionError
        """
        lv = self._volume(context, placeholder_id)
        if table.sectors(lv.size) != length:
            raise thin_maps.UnusableMap(_('it has another size'))
        self._refuse_without_metadata(lv)
        return read(lv)

    def _volume(self, context: cinder_context.RequestContext,
                placeholder_id: str) -> LogicalVolume:
        """Return the thin volume that is all that a source has.

        :raises: UnusableMap if there is none, or if it may be written
        """
        if not self._source.seal(context, placeholder_id):
            raise thin_maps.UnusableMap(_('it is not sealed'))
        placeholder = lookups.placeholder(context, placeholder_id)
        assert placeholder is not None
        names = Names(placeholder.name_id)
        lv = (logical_volumes.find_read_as(names.name_id,
                                           self._backend.group.vg_name)
              if placeholder.snapshot_id else
              self._backend.logical_volume(names))
        if lv is None or not lv.thin:
            raise thin_maps.UnusableMap(_('it is not thin'))
        if lv.clone or lv.deleted or lv.taken or LocalVolume(
                names_module.of_logical_volume(lv.name) or names).is_clone():
            raise thin_maps.UnusableMap(_('it is not complete itself'))
        if not self._is_alone(lv):
            raise thin_maps.UnusableMap(_('it has an external origin'))
        return lv

    @staticmethod
    def _is_alone(lv: LogicalVolume) -> bool:
        """Whether what is not allocated reads zeros.

        With an external origin (lvmthin(7)), which is in no pool, it reads
        that. A snapshot has that of its origin, too, and LVM names only the
        latter (alloc_lv_segment in lib/metadata/lv_manip.c). So the kernel is
        asked what is below.
        """
        return len(sysfs.disks_below(lvm.device(lv.group, lv.name))) == 1

    def _refuse_without_metadata(self, lv: LogicalVolume) -> None:
        """Refuse to read a pool that is short of metadata.

        Meanwhile what others write takes more of that: no block of it that is
        changed is freed.

        :raises: UnusableMap
        """
        if reserve.lacks_metadata(lv.group, lv.pool, int(
                self._backend.configuration.reserved_percentage)):
            raise thin_maps.UnusableMap(
                _('only the reserve of the metadata of its pool is left'))

    def release_left(self, pools: collections.abc.Iterable[str]) -> None:
        """Release the copies of pools' metadata that a crash has left.

        :param pools: names of logical volumes of this group
        """
        group, live = self._backend.group.vg_name, sysfs.devices()
        for name in pools:
            pool = thin_pools.device_of(group, name)
            status = dmsetup.pool(pool)[0] if pool in live else None
            if status is not None and status.copied and thin.release(pool):
                LOG.info('The copy of the metadata of thin pool %s is '
                         'released: reading it was interrupted.',
                         '%s/%s' % (group, name))
