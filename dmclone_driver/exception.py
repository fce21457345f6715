# SPDX-License-Identifier: Apache-2.0
"""Exceptions whose messages say what failed, why, and what to do."""

from cinder import exception

from dmclone_driver.i18n import _


def text_of(error: Exception) -> str:
    """Return what a failed command has printed, or the error's own text."""
    return str(getattr(error, 'stderr', None) or error).strip()


class NoPeer(exception.InvalidConnectorException):
    """The connector's host has no backend to move a volume to."""

    message = _("No backend %(backend)s can attach volume %(volume)s on host "
                "%(host)s (%(address)s): %(reason)s. Start cinder-volume with "
                "this backend there, choose another host, or ask the operator "
                "to set dmclone_remote_attach.")


class MoveRefused(exception.VolumeDriverException):
    """The volume can't be moved now; nothing was changed."""

    message = _("Volume %(volume)s can't be attached on %(host)s: %(reason)s.")


class NoRoomOnPeer(MoveRefused):
    """The peer has no room for the volume; nothing was changed.

    Of all refusals only this one may lead to a remote connection.
    """


class MigrationRefused(MoveRefused):
    """The volume can't be migrated to a peer now; nothing was changed."""

    message = _("Volume %(volume)s can't be migrated to %(host)s: "
                "%(reason)s.")


class MoveFailed(exception.VolumeDriverException):
    """A move failed before its switchover and was rolled back."""

    message = _("Volume %(volume)s could not be moved to %(host)s: "
                "%(reason)s. It stays where it was. Try again; if that does "
                "not help, ask the operator to check that host.")


class MoveGone(exception.VolumeDriverException):
    """The move was aborted, or another one has taken its place."""

    message = _("Move %(placeholder)s of volume %(volume)s is no longer "
                "prepared: %(reason)s.")


class PaceRefused(exception.VolumeDriverException):
    """The limits of copies can't be changed so; nothing was changed."""

    message = _("The pace of copies on %(host)s was not changed: %(reason)s.")


class LockNotAcquired(exception.VolumeDriverException):
    """A volume's lock can't be taken now; nothing was done."""

    message = _("Nothing was done to volume %(volume)s: %(reason)s. Try "
                "again later; if that does not help, ask the operator to "
                "check the log of cinder-volume.")


class NotWhileMoving(exception.InvalidVolume):
    """An operation that has to wait until a volume's move is complete."""

    message = _("Can't %(action)s volume %(volume)s while its data is moving "
                "from %(source)s to %(destination)s. Wait until the move "
                "is complete, then try again.")


class RequestsWait(exception.InvalidVolume):
    """A device whose requests can't be held up, as some do not end."""

    message = _("Device %(device)s of %(names)s was not changed: some of its "
                "requests wait for the volume's source or its switchover, and "
                "all others would have had to wait with them. Try again.")


class NotHere(exception.InvalidVolume):
    """A request to a node from which the volume has moved away."""

    message = _("Can't %(action)s volume %(volume)s: it has just moved to "
                "%(host)s. Try again.")


class IsPlaceholder(exception.InvalidVolume):
    """A request for the row that stands for a source or destination."""

    message = _("Can't %(action)s volume %(placeholder)s: it stands for data "
                "of volume %(volume)s on %(host)s while that moves, and the "
                "driver removes it when it is no longer needed. To move or "
                "delete data, use volume %(volume)s.")


class MovedAway(exception.InvalidVolume):
    """The database points to a source, so it has lost the move."""

    message = _("Can't %(action)s volume %(volume)s on %(host)s: logical "
                "volume %(lv)s is the source of the volume's move to another "
                "node, and the database does not know of that move. The "
                "database was restored, or has lost its last transactions. "
                "Nothing is changed on any node. Ask the operator to bring "
                "the database up to date (dmclone-reconcile shows what each "
                "node has).")


class NotOnNode(exception.InvalidVolume):
    """The logical volume is not on the node that the database names."""

    message = _("Can't %(action)s volume %(volume)s: there is no logical "
                "volume %(lv)s on %(host)s. If the database was restored, or "
                "has lost its last transactions, ask the operator to run "
                "dmclone-reconcile on the other nodes: it shows what they "
                "have.")


class StillClone(exception.InvalidVolume):
    """By LVM's tags a volume is a clone, but the database has no source."""

    message = _("Can't %(action)s volume %(volume)s: logical volume %(lv)s "
                "does not have all of its data yet, and the database does "
                "not know where the rest is. Ask the operator to bring the "
                "database up to date (dmclone-reconcile shows what each "
                "node has).")


class GroupRefused(exception.VolumeDriverException):
    """A member of a group can't be made; nothing is left of the others."""

    message = _("Nothing was created for group or group snapshot %(group)s: "
                "%(reason)s. Delete it, and create it again when that is "
                "corrected.")


class MemberElsewhere(exception.InvalidVolume):
    """A volume of a group that is not on the group's node."""

    message = _("its volume %(volume)s is on %(host)s, to which it was moving "
                "when it was added to the group; remove it from the group")


class NoRoomForSnapshots(exception.VolumeDriverException):
    """There is too little space for the snapshots of a group."""

    message = _("its snapshots need %(needed)d GiB, and the volume group has "
                "only %(free).2f GiB left")


class DeletionRefused(exception.VolumeIsBusy):
    """A volume can't be deleted now; Cinder makes it available again."""

    message = _("Can't delete volume %(volume)s: %(reason)s.")


class PoolTakesNoChanges(exception.VolumeDriverException):
    """A thin logical volume that its pool would not delete."""

    message = _("Logical volume %(lv)s is neither deleted nor merged: its "
                "thin pool %(pool)s takes no changes (%(reason)s). Ask the "
                "operator to repair the pool, then try again.")


class SnapshotWouldOverflow(exception.InvalidSnapshot):
    """A snapshot without room for a change of every block of its volume."""

    message = _("Can't revert volume %(volume)s by a copy of all of its "
                "data: its snapshot %(lv)s has no room for that much change. "
                "Delete that snapshot, or create a volume from the one to "
                "which this volume should be reverted.")


class ClonesRead(exception.InvalidVolume):
    """A volume that clones still read, and that LVM would deactivate."""

    message = _("Can't %(action)s volume %(volume)s: volumes that were cloned "
                "from it are not complete yet. Wait until they are, then try "
                "again.")


class SnapshotAboveClone(exception.SnapshotIsBusy):
    """A snapshot that is nothing without this driver's devices."""

    message = _("Can't unmanage snapshot %(snapshot_name)s: it was taken "
                "while its volume was hydrating, and only this driver can "
                "read it. Create a volume from it, and unmanage that instead.")


class SnapshotElsewhere(exception.SnapshotIsBusy):
    """A snapshot from which its volume has moved away."""

    message = _("Can't unmanage snapshot %(snapshot_name)s: it is on "
                "%(host)s, and its volume is not. It could not be managed "
                "again. Create a volume from it, and unmanage that instead.")


class SnapshotFollowed(exception.SnapshotIsBusy):
    """An unmanage of a snapshot that is a whole copy."""

    message = _("Can't unmanage snapshot %(snapshot_name)s: on this node it "
                "is a copy of all data, which LVM does not know as a "
                "snapshot. Create a volume from it, and unmanage that.")


class SnapshotStays(exception.VolumeDriverException):
    """A snapshot that cannot follow its volume."""

    message = _("Snapshot %(snapshot)s can't be copied to %(host)s: "
                "%(reason)s.")


class SnapshotUnavailable(exception.VolumeDriverException):
    """There is no logical volume of a snapshot on its node."""

    message = _("Snapshot %(snapshot)s, from which volume %(volume)s is to be "
                "read, is not on %(host)s. If it was not deleted, ask the "
                "operator to look for it (dmclone-reconcile shows what each "
                "node has).")


class OriginNotRebuilt(exception.VolumeDriverException):
    """The clone that a snapshot was taken of is not rebuilt on its node."""

    message = _("Snapshot %(snapshot)s on %(host)s can't be read: the clone "
                "on logical volume %(lv)s, of which it was taken, is not "
                "rebuilt. The log of cinder-volume there says why.")


class SourceUnreachable(exception.VolumeDriverException):
    """The iSCSI portal of a source does not answer."""

    message = _("the iSCSI portal %(portal)s of the source's node cannot be "
                "reached from the destination's node: %(error)s")


class SnapshotNotServed(exception.VolumeDriverException):
    """The node of a snapshot does not serve it."""

    message = _("Volume %(volume)s can't be created from snapshot "
                "%(snapshot)s, which is on %(host)s: %(reason)s. Delete the "
                "new volume, and create it again when cinder-volume runs on "
                "that node, and the node can be reached.")


class RevertNotServed(SnapshotNotServed):
    """The node of a snapshot does not serve it for a revert."""

    message = _("Can't revert volume %(volume)s to snapshot %(snapshot)s, "
                "which is on %(host)s: %(reason)s. The volume was not "
                "changed. Delete the snapshot that Cinder took before the "
                "revert, reset the volume's state, and try again when "
                "cinder-volume runs on that node, and the node can be "
                "reached.")


class FollowerNotServed(SnapshotNotServed):
    """The node of a snapshot does not serve it to the node it follows to."""

    message = _("Snapshot %(snapshot)s can't be copied from %(host)s: "
                "%(reason)s. Nothing was changed. Try again when "
                "cinder-volume runs on that node, and the node can be "
                "reached.")


class DataLost(exception.InvalidVolume):
    """An operation that needs data of a lost source."""

    message = _("Can't %(action)s volume %(volume)s: part of its data was on "
                "%(host)s, which is lost. Copy what can be read of it to "
                "another volume, and delete this one.")


class DatabaseBehind(exception.VolumeDriverException):
    """A destination was in use, but the database says that it never was."""

    message = _("Logical volume %(lv)s is kept: it has been the home of "
                "volume %(volume)s, but the database, which was restored "
                "or has lost its last transactions, says that its move is "
                "%(state)s")


class ReadLagsBehind(exception.VolumeDriverException):
    """One of several database servers does not have the last transactions."""

    message = _("The database as it is read on this node does not have the "
                "last changes of volume %(volume)s yet. Try again; if it "
                "fails again, ask the operator to check the database's "
                "replication.")


class HandleMissing(exception.VolumeDriverException):
    """A volume's handle could not be rebuilt at the start."""

    message = _("Volume %(volume)s can't be used on %(host)s: its device "
                "%(path)s could not be created there. The driver retries "
                "that until it succeeds. Try again later; if that does not "
                "help, the log of cinder-volume says why.")


class PartlyDeleted(exception.VolumeDriverException):
    """A volume whose deletion was interrupted."""

    message = _("Volume %(volume)s can't be used: its deletion has begun, "
                "and its data is lost. Delete it again.")


class EncryptionRefused(exception.VolumeDriverException):
    """os-brick would replace the handle by a link to the decrypted device."""

    message = _("Volume %(volume)s can't be attached: its type is encrypted "
                "with the provider %(provider)s, and only luks works with "
                "local volumes. Retype it to a type that uses luks.")


class UnexpectedTable(exception.VolumeDriverException):
    """A device whose present table may not be replaced by a linear one."""

    message = _("Device %(device)s of %(names)s was not changed: it is not "
                "%(expected)s, the kernel says: %(status)s. Wait until all of "
                "the volume's data is on one node, then try again.")


class MetadataUnusable(exception.VolumeDriverException):
    """A clone's metadata is missing or was never formatted."""

    message = _("Metadata of %(names)s is unusable: %(reason)s. Logical "
                "volume %(lv)s holds part of the data, its source on another "
                "node the rest; nothing was deleted.")


class NoRoomForMetadata(exception.VolumeDriverException):
    """A clone can't be created: there is no room for its metadata."""

    message = _("Metadata of %(names)s needs %(needed)d MiB in volume group "
                "%(group)s: %(reason)s. Wait until other volumes have "
                "hydrated, or ask the operator for more space.")


class NoRoomInPool(exception.VolumeDriverException):
    """A clone can't be created: its copy would fill the thin pool."""

    message = _("The copy of %(names)s would fill thin pool %(pool)s: with "
                "the other copies under way it needs %(needed).2f GiB more "
                "than the pool has besides its reserve of %(reserved)d %%. "
                "Wait until volumes there are deleted, choose another node, "
                "or ask the operator for more space.")


class BadConfiguration(exception.VolumeBackendAPIException):
    """The backend can't start as it is configured."""

    message = _("Option %(option)s = %(value)s in section [%(section)s]: "
                "%(reason)s.")


class PeerError(exception.VolumeDriverException):
    """A request to a peer failed."""


class PeerUnreachable(PeerError):
    """A peer did not answer in time, or its queue has no consumer."""

    message = _("backend %(host)s did not answer %(call)s within %(seconds)s "
                "seconds")


class PeerBusy(PeerError):
    """Other destinations are being prepared; nothing was done."""

    message = _("it prepares %(number)d volumes at a time, and others were "
                "first for %(seconds)d seconds; try again")


class PeerFailed(PeerError):
    """A peer answered that the request failed."""

    message = _("backend %(host)s says: %(reason)s")


class PeerTooOld(PeerFailed):
    """A peer with an older version of this driver, without this call."""

    message = _("backend %(host)s runs an older version of this driver, "
                "which has no %(call)s; update it")
