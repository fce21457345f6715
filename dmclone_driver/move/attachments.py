# SPDX-License-Identifier: Apache-2.0
"""Which nodes use a volume, by Cinder's attachment records."""

from cinder.objects import fields

_INCOMPLETE = (None, fields.VolumeAttachStatus.RESERVED,
               fields.VolumeAttachStatus.ATTACHING,
               fields.VolumeAttachStatus.ERROR_ATTACHING)


def attached_on(connector, node):
    """Whether a connector names a node as its host."""
    return bool(connector) and connector.get('host') == node


def on_node(volume, node):
    """Return the attachment records of a volume for a node."""
    return [record for record in volume.volume_attachment
            if attached_on(record.connector, node)]


def complete(volume, node):
    """Whether a volume has a complete attachment for a node.

    An instance on the node uses the volume or is about to.
    """
    return any(record.attach_status not in _INCOMPLETE
               for record in on_node(volume, node))


def live(volume, node):
    """Return the attachment records through which a node uses a volume.

    A record without a connector counts: its request is in progress.
    """
    return [record for record in volume.volume_attachment
            if not record.connector or attached_on(record.connector, node)]


def elsewhere(volume, node):
    """Return the attachment records of a volume for other nodes."""
    return [record for record in volume.volume_attachment
            if record.connector and not attached_on(record.connector, node)]


def used_elsewhere(volume, node, connector=None):
    """Return the attachment records of instances on other nodes.

    Incomplete attachments are left out, except those of the connector's
    host.

    :param connector: of a host where an instance may run
    """
    host = connector and connector.get('host')
    return [record for record in elsewhere(volume, node)
            if record.attach_status not in _INCOMPLETE or
            attached_on(record.connector, host)]


def attaching(volume, node):
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


def is_internal(volume):
    """Whether a connection is for Cinder itself (an internal attach).

    Image, backup and migration tasks create no attachment record.
    """
    return not volume.volume_attachment
