# SPDX-License-Identifier: Apache-2.0
"""The fields that this driver writes into rows of volumes and placeholders.

A transaction has locked the rows: see :mod:`transactions`.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses
from typing import Any

from oslo_config import cfg
from sqlalchemy import orm

from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.releases import models

# Fields that belong to the logical volume, not to the user.
EXCHANGED = ('_name_id', 'host', 'cluster_name', 'availability_zone',
             'service_uuid', 'provider_id', 'provider_location',
             'provider_auth', 'provider_geometry')

#: The maximum length of a record, in characters.
RECORD_LENGTH = models.Volume.replication_driver_data.type.length

#: The migration status of a placeholder, before the volume's id. Cinder's API
#: refuses to change a volume with a migration status that it does not know
#: (AVAILABLE_MIGRATION_STATUS in cinder/volume/api.py). One that begins with
#: "target:" would let a deletion that the driver refuses destroy the row
#: (VolumeManager._clear_db in cinder/volume/manager.py).
MIGRATION_STATUS = 'dmclone:'

#: The project of placeholders, unless Cinder's internal one is configured: no
#: tenant sees them, and none is billed for them.
PROJECT = 'dmclone_driver'

CONF = cfg.CONF


def add(session: orm.Session, there: peers.Peer, volume: models.Volume,
        found: placeholders.Record, **fields: str | None) -> None:
    """Add a placeholder on a backend, for a volume."""
    session.add(models.Volume(
        host=there.host, provider_id=there.host,
        service_uuid=there.service_uuid,
        availability_zone=there.availability_zone,
        **of_placeholder(volume, found), **fields))


def exchange(volume: models.Volume, placeholder: models.Volume) -> None:
    """Exchange the fields that belong to the logical volumes of two rows."""
    for field in EXCHANGED:
        mine, other = getattr(volume, field), getattr(placeholder, field)
        if field == '_name_id':
            mine, other = mine or volume.id, other or placeholder.id
        setattr(volume, field, other)
        setattr(placeholder, field, mine)


def of_placeholder(volume: models.Volume,
                   found: placeholders.Record) -> dict[str, Any]:
    """Return a placeholder's fields, except those about its backend."""
    return dict(
        _owner(), **status_columns(found), size=volume.size,
        attach_status='detached', use_quota=False, multiattach=False,
        volume_type_id=volume.volume_type_id,
        display_name='dmclone move of %s' % volume.id,
        replication_driver_data=found.text())


def project() -> str:
    """Return the project of placeholders."""
    return CONF.cinder_internal_tenant_project_id or PROJECT


def _owner() -> dict[str, str]:
    """Return the user and project of placeholders."""
    return {'user_id': CONF.cinder_internal_tenant_user_id or PROJECT,
            'project_id': project()}


def status_columns(found: placeholders.Record) -> dict[str, str]:
    """Return the status fields of a placeholder with a record."""
    return {'status': 'maintenance',
            'migration_status': MIGRATION_STATUS + found.volume}


def set_owner(placeholder: models.Volume, volume_id: str) -> None:
    found = placeholders.record_of(placeholder)
    # Callers know by now that the row is a placeholder.
    assert found is not None
    found = dataclasses.replace(found, volume=volume_id)
    placeholder.replication_driver_data = found.text()
    placeholder.migration_status = MIGRATION_STATUS + volume_id


def set_state(placeholder: models.Volume, state: State) -> None:
    found = placeholders.record_of(placeholder)
    # Callers know by now that the row is a placeholder.
    assert found is not None
    placeholder.replication_driver_data = found.but(state).text()
