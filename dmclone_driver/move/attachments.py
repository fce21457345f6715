# SPDX-License-Identifier: Apache-2.0
"""What Cinder's attachment records say about who uses a volume."""

from cinder.objects import fields

_NOT_YET = (None, fields.VolumeAttachStatus.RESERVED,
            fields.VolumeAttachStatus.ATTACHING,
            fields.VolumeAttachStatus.ERROR_ATTACHING)


def attached_on(connector, node):
    """Whether a connector belongs to a node, by its name."""
    return bool(connector) and connector.get('host') == node


def on_node(volume, node):
    """Return the attachment records of a volume for a node."""
    return [record for record in volume.volume_attachment
            if attached_on(record.connector, node)]


def complete(volume, node):
    """Whether an instance on a node has, or is to have, a volume."""
    return any(record.attach_status not in _NOT_YET
               for record in on_node(volume, node))


def live(volume, node):
    """Return the attachment records through which a node uses a volume.

    A record without a connector is one whose request is under way.
    """
    return [record for record in volume.volume_attachment
            if not record.connector or attached_on(record.connector, node)]


def elsewhere(volume, node):
    """Return the attachment records through which other nodes use it."""
    return [record for record in volume.volume_attachment
            if record.connector and not attached_on(record.connector, node)]


def used_elsewhere(volume, node, connector=None):
    """Return the records through which instances of other nodes use it.

    Those that are not complete are none, unless an instance may run there.

    :param connector: of a host where one may
    """
    host = connector and connector.get('host')
    return [record for record in elsewhere(volume, node)
            if record.attach_status not in _NOT_YET or
            attached_on(record.connector, host)]


def under_way(volume, node):
    """Whether a volume that is attached elsewhere is not yet on a node.

    Nova completes an attachment when the node is ready for the instance,
    which starts to run there later (nova/compute/manager.py,
    pre_live_migration). Whoever writes before that is no guest: it may be
    cryptsetup luksFormat, which Nova runs if it takes an encrypted volume
    for an empty one (nova/virt/libvirt/driver.py, _attach_encryptor).
    """
    return bool(volume.volume_attachment) and all(
        record.attach_status in _NOT_YET for record in on_node(volume, node))


def is_internal(volume):
    """Whether a connection is asked for by Cinder itself.

    Image, backup and migration tasks have no attachment record.
    """
    return not volume.volume_attachment
