# SPDX-License-Identifier: Apache-2.0
"""Which nodes use a volume, by Cinder's attachment records."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from typing import Any

from cinder import objects
from cinder.objects import fields

_INCOMPLETE = (None, fields.VolumeAttachStatus.RESERVED,
               fields.VolumeAttachStatus.ATTACHING,
               fields.VolumeAttachStatus.ERROR_ATTACHING)


def attached_on(connector: dict[str, Any] | None, node: str | None) -> bool:
    """Whether a connector names a node as its host."""
    return connector.get('host') == node if connector else False


def on_node(volume: objects.Volume,
            node: str) -> list[objects.VolumeAttachment]:
    """Return the attachment records of a volume for a node."""
    return [record for record in volume.volume_attachment
            if attached_on(record.connector, node)]


def complete(volume: objects.Volume, node: str) -> bool:
    """Whether a volume has a complete attachment for a node.

    An instance on the node uses the volume or is about to.
    """
    return any(record.attach_status not in _INCOMPLETE
               for record in on_node(volume, node))


def live(volume: objects.Volume,
         node: str) -> list[objects.VolumeAttachment]:
    """Return the attachment records through which a node uses a volume.

    A record without a connector counts: its request is in progress.
    """
    return [record for record in volume.volume_attachment
            if not record.connector or attached_on(record.connector, node)]


def elsewhere(volume: objects.Volume,
              node: str) -> list[objects.VolumeAttachment]:
    """Return the attachment records of a volume for other nodes."""
    return [record for record in volume.volume_attachment
            if record.connector and not attached_on(record.connector, node)]


def used_elsewhere(
        volume: objects.Volume, node: str,
        connector: dict[str, Any] | None = None
) -> list[objects.VolumeAttachment]:
    """Return the attachment records of instances on other nodes.

    Incomplete attachments are left out, except those of the connector's
    host.

    :param connector: of a host where an instance may run
    """
    host: Any = connector and connector.get('host')
    return [record for record in elsewhere(volume, node)
            if record.attach_status not in _INCOMPLETE or
            attached_on(record.connector, host)]


def attaching(volume: objects.Volume, node: str) -> bool:
    """Whether an attached volume has no complete attachment on a node.

    Nova completes an attachment when the node is ready for the instance,
    which starts to run there later (nova/compute/manager.py,
    pre_live_migration). An earlier write is not the guest's. It may be from
    cryptsetup luksFormat, which Nova runs if it takes an encrypted volume
    for an empty one (nova/virt/libvirt/driver.py, _attach_encryptor).
    """
    return bool(volume.volume_attachment) and all(
        record.attach_status in _INCOMPLETE
        for record in on_node(volume, node))


def is_internal(volume: objects.Volume) -> bool:
    """Whether a connection is for Cinder itself (an internal attach).

    Image, backup and migration tasks create no attachment record.
    """
    return not volume.volume_attachment
