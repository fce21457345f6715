# SPDX-License-Identifier: Apache-2.0
"""What a move needs on its destination: all blocks, or those allocated here.

Of a thin volume the destination copies what the source has allocated, if both
nodes can read the maps of their pools: see :mod:`.marks`. Should that fail
later, all is copied: that stops before the reserve of the pool, see
:mod:`.reserve`.
"""

import dataclasses
from typing import Any

from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import reserve
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import thin_maps
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import block


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a volume needs on the node where it moves.

    :ivar allocated: what will be copied; None if that may be all
    """

    size: Bytes
    allocated: Bytes | None = None

    def lacking(self, description: dict[str, Any]) -> str | None:
        """Return what the destination's node does not have, or None.

        :param description: the answer of Destination.describe
        """
        values = {'needed': self.size / units.Gi,
                  'free': description['free_gb'],
                  'reserved': description.get('reserved_percentage', 0)}
        if self.allocated is None:
            return _('it needs %(needed)d GiB, and the backend there has only '
                     '%(free).2f GiB left (reserved_percentage = '
                     '%(reserved)d); delete volumes there, or choose another '
                     'host') % values if (
                         values['free'] < values['needed']) else None
        values.update(allocated=self.allocated / units.Gi,
                      least=reserve.LEAST,
                      virtual=description['virtual_free_gb'],
                      blocks=description['free_blocks_gb'])
        if values['virtual'] < values['needed']:
            return _('it has %(needed)d GiB, and volumes of only '
                     '%(virtual).2f GiB may be added to the thin pool there '
                     '(max_over_subscription_ratio, reserved_percentage = '
                     '%(reserved)d); extend the pool, delete volumes there, '
                     'or choose another host') % values
        # Without any a guest may need what is left.
        if not values['blocks'] or values['blocks'] < values['allocated']:
            return _('it has allocated %(allocated).2f GiB, and the thin pool '
                     'there has only %(blocks).2f GiB left for copies '
                     '(reserved_percentage = %(reserved)d, %(least)d at '
                     'least; none if its metadata is short); extend the pool, '
                     'delete volumes there, or choose another host') % values
        return None

    def request(self) -> dict[str, Any]:
        """Return the arguments that they add to the request to prepare."""
        return ({} if self.allocated is None else
                {'version': '1.6', 'allocated': self.allocated})


def of(backend: Backend, names: Names, description: dict[str, Any]) -> Needs:
    """Return what a volume of this node needs on another one.

    No process is run.

    :param description: the answer of Destination.describe there
    :raises: ProcessExecutionError, OSError, ValueError if it has failed
    """
    size, group = block.size(names.path()), backend.group.vg_name
    if 'free_blocks_gb' not in description or not thin_maps.is_installed() or (
            LocalVolume(names).is_clone()):
        return Needs(size)
    allocated = thin_pools.allocated(group, names.volume)
    # There is no map of a pool that is short of metadata, see maps.
    if allocated is None or reserve.lacks_metadata(
            group, thin_pools.name_of(group),
            int(backend.configuration.reserved_percentage)):
        return Needs(size)
    return Needs(size, allocated)
