# SPDX-License-Identifier: Apache-2.0
"""The rows that reports are made from, read with few and small queries.

Only some columns are read, and none of what belongs to a row in other tables:
a node may have hundreds of volumes, a cloud hundreds of nodes.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections
import collections.abc
import dataclasses

from cinder import context as cinder_context
from cinder.volume import volume_utils
from oslo_utils import units
import sqlalchemy

from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Record
from dmclone_driver.move import row_fields
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models

# Ids in one query: databases limit the parameters of a statement.
CHUNK = 500


@dataclasses.dataclass(frozen=True)
class Row:
    """A volume or a placeholder.

    :ivar backend: ``node@backend`` that has its logical volume; empty if none
    :ivar size: bytes
    :ivar record: of a placeholder's move; None for a volume
    :ivar prepared: id of the placeholder of a volume's prepared move
    :ivar snapshot: of a placeholder, the snapshot that is the source
    """

    id: str
    name_id: str
    backend: str
    status: str
    size: int
    record: Record | None
    prepared: str | None
    snapshot: str | None


_COLUMNS = (models.Volume.id, models.Volume._name_id, models.Volume.host,
            models.Volume.provider_id, models.Volume.status,
            models.Volume.size, models.Volume.replication_driver_data,
            models.Volume.snapshot_id, models.Volume.migration_status)


def _read(context: cinder_context.RequestContext,
          condition: sqlalchemy.ColumnElement[bool]) -> dict[str, Row]:
    with db_api.main_context_manager.reader.using(context):
        found = context.session.query(*_COLUMNS).filter_by(
            deleted=False).filter(condition).all()
    return {each[0]: _row(*each) for each in found}


def _row(row_id: str, name_id: str | None, host: str | None,
         provider_id: str | None, status: str, size: int, data: str | None,
         snapshot_id: str | None, migration_status: str | None) -> Row:
    record = None
    if data and data.startswith('{') and not (
            migration_status or '').startswith(placeholders.COPY_STATUS):
        record = Record.parse(data)
        # Cinder's commands change the host, but not the driver's own field.
        host = provider_id or host
    return Row(
        id=row_id, name_id=name_id or row_id, status=status,
        backend=volume_utils.extract_host(host) if host else '',
        size=(size or 0) * units.Gi, record=record,
        prepared=None if not data or data.startswith('{') else data,
        snapshot=snapshot_id if record else None)


def with_ids(context: cinder_context.RequestContext,
             ids: collections.abc.Iterable[str]) -> dict[str, Row]:
    """Return the rows with some ids, {id: row}; one query for each 500."""
    wanted = sorted(ids)
    found: dict[str, Row] = {}
    for begin in range(0, len(wanted), CHUNK):
        found.update(_read(context, models.Volume.id.in_(
            wanted[begin:begin + CHUNK])))
    return found


def volumes(context: cinder_context.RequestContext) -> dict[str, int]:
    """Return the number of users' volumes of each backend, with two queries.

    One counts all rows, in an index alone, and the other one the placeholders.
    A query for the rows without the record of a placeholder would have to
    read each row of the cloud.

    :returns: {``node@backend``: number}
    """
    volume = models.Volume
    numbers: collections.Counter[str] = collections.Counter()
    with db_api.main_context_manager.reader.using(context):
        hosts = context.session.query(
            volume.host, sqlalchemy.func.count()).filter_by(
                deleted=False).filter(volume.host.is_not(None)).group_by(
                    volume.host)
        for host, number in hosts.all():
            numbers[volume_utils.extract_host(host)] += number
        for host, number in hosts.filter(
                volume.project_id == row_fields.project(),
                volume.replication_driver_data.startswith('{')).all():
            numbers[volume_utils.extract_host(host)] -= number
    return dict(numbers)


def moves(context: cinder_context.RequestContext) -> dict[str, Row]:
    """Return the placeholders of all moves, {id: row}, with one query."""
    found = _read(context, models.Volume.project_id == row_fields.project())
    return {row_id: row for row_id, row in found.items() if row.record}


def of_volume(context: cinder_context.RequestContext,
              volume_id: str) -> dict[str, Row]:
    """Return the rows of a volume and its moves, {id: row}: two queries."""
    found = {row_id: row for row_id, row in moves(context).items()
             if row.record and row.record.volume == volume_id}
    return dict(found, **with_ids(context, [volume_id]))


def of_backend(context: cinder_context.RequestContext, host: str,
               clones: collections.abc.Iterable[str]) -> dict[str, Row]:
    """Return all rows that a backend has to do with, {id: row}.

    The rows of its volumes and sources, those of their moves, and the volumes
    of these.

    :param host: ``node@backend``
    :param clones: name ids of its clones
    """
    found = _read(context, lookups.is_on(host))
    ids = set(clones)
    for row in found.values():
        if row.record:
            ids.add(row.record.volume)
        ids.update({row.name_id, row.prepared or row.id})
    found.update(with_ids(context, ids - found.keys()))
    return found
