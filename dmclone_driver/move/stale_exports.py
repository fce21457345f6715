# SPDX-License-Identifier: Apache-2.0
"""Exports that are left on this node, and that no peer needs."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move.source import Source
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)


def remove(context: cinder_context.RequestContext, backend: Backend,
           source: Source) -> None:
    """Remove the exports that no peer needs.

    After a reboot only the target of an export may be left.
    """
    exported = {parsed[0] for parsed in map(
        names_module.parse, dmsetup.devices())
        if parsed and parsed[1] == EXPORT}
    exported.update(filter(None, map(names_module.of_target,
                                     backend.target.names())))
    for names in exported:
        try:
            _remove_if_stale(context, backend, source, names)
        except Exception:
            LOG.exception('Checking whether the export of %s is in use '
                          'failed; it is kept.', names)


def _remove_if_stale(context: cinder_context.RequestContext, backend: Backend,
                     source: Source, names: Names) -> None:
    """Remove an export, unless its volume or source still needs it."""
    lv = backend.logical_volume(names)
    row = lookups.owner_row(context, names.name_id)
    if lv is not None and lv.sealed and placeholders.state_of(row) is None:
        # A clone may read it, whatever the database says.
        return
    if row is None:
        if logical_volumes.find_read_as(
                names.name_id, backend.group.vg_name) is None:
            source.unexport(names)
        return
    with backend.lock(lookups.guarding_id(row)):
        row.refresh()
        if not (lookups.prepared_move(row) or
                placeholders.state_of(row) == State.SWITCHED):
            source.unexport(names)
