# SPDX-License-Identifier: Apache-2.0
"""Removing a logical volume with all that was built around it."""

import dataclasses

from cinder import exception as cinder_exception
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import records
from dmclone_driver.move import rpcapi
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import devices
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

RELEASE, DELETE, ACTIVATE = 'release', 'delete_destination', 'activate'

# Seconds that a peer has to do what it is asked.
TIMEOUT = 20


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a peer was asked to do about a move of a volume."""

    host: str
    what: str
    volume_id: str


class Teardown:
    """Each method can be repeated and goes on where it was cut off."""

    def __init__(self, backend):
        self._backend = backend
        #: What peers have not done yet: {placeholder id: Wanted}.
        self.pending = {}

    def remove(self, context, row):
        """Delete the data of a row whose volume nobody needs any more.

        If it was still a clone, its own source goes too.

        :raises: VolumeIsBusy
        """
        self.cut_loose(context, row)
        self.delete_data(context, row)

    def cut_loose(self, context, row):
        """Leave of a row's volume nothing but its data and a linear handle.

        :raises: VolumeIsBusy, or VolumeDriverException if what is on it is
            lost already
        """
        names = Names(row.name_id)
        lv = self._backend.logical_volume(names)
        if devices.is_open(names):
            if lv is not None and lv.deleted:
                # Cinder makes a busy volume available again.
                raise cinder_exception.VolumeDriverException(message=_(
                    'volume %(id)s is still being cleared (%(path)s is open): '
                    'delete it again when that has ended') % {
                        'id': row.id, 'path': names.path()})
            raise cinder_exception.VolumeIsBusy(volume_name=row.name)
        self._backend.target.unexport(names.target)
        devices.remove(names, EXPORT)
        source = records.placeholder(context, row.name_id)
        if source is not None or (lv is not None and lv.clone):
            self._drop_clone(names, lv, source)
        if lv is not None and not lv.deleted:
            logical_volumes.tag(lv.group, lv.name,
                                logical_volumes.DELETED_TAG)
        steps.reached(Step.CUT_LOOSE, names.name_id)

    def delete_data(self, context, row):
        """Clear and delete what :meth:`cut_loose` has left.

        It takes as long as it takes to write all of the volume.
        """
        names = Names(row.name_id)
        source = records.placeholder(context, row.name_id)
        # A source's handle refuses writes; the data is cleared through a new
        # one.
        devices.remove(names, HANDLE)
        self._backend.delete_volume(row)
        steps.reached(Step.DELETED, names.name_id)
        if source is not None:
            self.release(context, source)

    def _drop_clone(self, names, lv, source):
        if lv is not None:
            # Before it looks like a complete one: half of it is old blocks.
            logical_volumes.retag(lv, logical_volumes.METADATA_TAG,
                                  logical_volumes.DELETED_TAG)
        if names.of(HANDLE) in dmsetup.clones():
            if not devices.stop_hydration(names):
                # The suspend would wait for a source that does not answer.
                self._backend.initiator.cut(
                    source and source.provider_location)
                if not devices.fail_without_source(names):
                    raise self._still_copying(names, source)
            devices.drop_clone(names, lv)
        self.remove_devices(names, source, GATE, SOURCE)
        self.forget_metadata(names)

    @staticmethod
    def _still_copying(names, source):
        location = source and source.provider_location
        return cinder_exception.VolumeDriverException(message=_(
            'the logical volume of %(path)s cannot be deleted yet: copies '
            'wait for its source on %(host)s, and the iSCSI session to that '
            'could not be ended. End it ("iscsiadm -m node -T %(iqn)s '
            '--logout") or bring that node back, then delete the volume '
            'again.') % {
                'path': names.path(),
                'host': records.backend_of(source) if source else '?',
                'iqn': location.split()[1] if location else '?'})

    def remove_devices(self, names, source, *roles):
        """Remove what a clone has needed, but for its bitmap.

        :param source: the row that knows its session; None if gone
        :param roles: of the devices that are removed first: os-brick takes
            whatever lies on an imported disk for a multipath device
        """
        devices.remove(names, *roles)
        steps.reached(Step.DISMANTLED, names.name_id)
        if source is not None:
            self._backend.initiator.disconnect(source.provider_location,
                                               source.provider_auth)
        steps.reached(Step.DISCONNECTED, names.name_id)

    def forget_metadata(self, names):
        """Remove the metadata of what is no clone any more."""
        self._backend.metadata.remove(names)
        steps.reached(Step.FORGOTTEN, names.name_id)

    def release(self, context, source):
        """Write down that a source is not needed, and tell its node.

        If that is lost, only its row is left to delete.
        """
        if records.release(context, source.id):
            self.ask(context, source, RELEASE)
            return
        source = records.placeholder(context, source.id)
        if records.state(source) == records.LOST:
            self.forget_source(context, source)

    def forget_source(self, context, source):
        """Delete the row of a source whose node never comes back.

        Where it was a clone, nothing else would release its own source.
        """
        further = records.placeholder(context, source.name_id)
        if further is not None:
            self.release(context, further)
        records.destroy(context, source.id)
        self.pending.pop(source.id, None)

    def ask(self, context, placeholder, what, sealed=False, timeout=None):
        """Ask a placeholder's node for something; remember it if that fails.

        :param placeholder: as it was before the switchover for ACTIVATE: then
            it stands for the destination
        :param what: RELEASE a source, DELETE an aborted destination, or
            ACTIVATE a switched one
        :param sealed: for ACTIVATE, whether the source is sealed already
        :param timeout: seconds until it has to be answered, if less than
            usual
        """
        self.remember(placeholder, what)
        self._ask(context, placeholder.id, sealed, timeout)

    def remember(self, placeholder, what):
        """Let a placeholder's node be asked by the next :meth:`ask_again`."""
        self.pending[placeholder.id] = Wanted(
            records.backend_of(placeholder), what,
            records.volume_of(placeholder))

    def ask_to_delete(self, context, placeholder_id, host, volume_id,
                      timeout):
        """Ask for the removal of what was aborted, as :meth:`ask` does.

        The row that was written a moment ago is not read for that.
        """
        self.pending[placeholder_id] = Wanted(host, DELETE, volume_id)
        self._ask(context, placeholder_id, timeout=timeout)

    def forget_destination(self, context, placeholder):
        """Delete the row of a destination that its node has deleted.

        If the database does not answer the node is asked again, and has
        nothing left to do.
        """
        self.remember(placeholder, DELETE)
        records.destroy(context, placeholder.id)
        self.pending.pop(placeholder.id, None)

    def remember_to_activate(self, context, source):
        """Let the home of what was switched be told; it may not know yet.

        :param source: its row, after the switchover
        """
        owner = records.owner_row(context, source.id)
        if owner is not None and records.state(owner) != records.LOST:
            self.pending[source.id] = Wanted(
                records.backend_of(owner), ACTIVATE,
                records.volume_of(source))

    def ask_again(self, context, volume_id=None, deadline=None, host=None):
        """Ask the nodes that have not done what they were asked.

        One that does not answer is asked for nothing else this time, and one
        whose service is known to be down for nothing at all.

        :param volume_id: ask only for what concerns this volume
        :param deadline: of the request that needs it
        :param host: ask only this backend
        """
        silent = set()
        for placeholder_id, wanted in list(self.pending.items()):
            if (volume_id not in (None, wanted.volume_id) or
                    host not in (None, wanted.host) or
                    self._is_settled(context, placeholder_id, wanted)):
                continue
            if wanted.host not in silent and (
                    deadline or self._backend.is_up(context, wanted.host)):
                timeout = deadline and deadline.left(TIMEOUT)
                if self._ask(context, placeholder_id, timeout=timeout):
                    continue
            silent.add(wanted.host)

    def _is_settled(self, context, placeholder_id, wanted):
        """Forget what the database says that nobody has to do any more."""
        row = records.get(context, placeholder_id)
        if row is not None and (wanted.what != ACTIVATE or
                                records.state(row) == records.SWITCHED):
            return False
        self.pending.pop(placeholder_id, None)
        return True

    def _ask(self, context, placeholder_id, sealed=False, timeout=None):
        """Ask for one thing; returns whether there was an answer."""
        wanted = self.pending.get(placeholder_id)
        if wanted is None:
            # Another thread has just had it done.
            return True
        try:
            if self._do_ask(context, placeholder_id, wanted, sealed,
                            TIMEOUT if timeout is None else timeout):
                records.destroy(context, placeholder_id)
        except (rpcapi.PeerUnreachable, rpcapi.PeerFailed) as error:
            LOG.warning('%(host)s was asked to %(what)s %(id)s of volume '
                        '%(volume)s: %(error)s. It does that when it is back, '
                        'or is asked again.',
                        {'host': wanted.host, 'what': wanted.what,
                         'id': placeholder_id, 'volume': wanted.volume_id,
                         'error': error.msg})
            return not isinstance(error, rpcapi.PeerUnreachable)
        self.pending.pop(placeholder_id, None)
        return True

    def _do_ask(self, context, placeholder_id, wanted, sealed, timeout):
        """Return whether the placeholder is not needed any more."""
        client = self._backend.client
        if wanted.what == RELEASE:
            client.release_source(context, wanted.host, placeholder_id)
        elif wanted.what == ACTIVATE:
            client.activate(context, wanted.host, placeholder_id, sealed,
                            timeout)
        else:
            return client.delete_destination(context, wanted.host,
                                             placeholder_id, timeout)
        return False

    def refuse_opened(self, names, placeholder):
        """Keep what has been a volume's home, whatever the database says.

        :raises: DatabaseBehind
        """
        lv = self._backend.logical_volume(names)
        if lv is not None and lv.opened:
            raise exception.DatabaseBehind(
                lv='%s/%s' % (lv.group, lv.name),
                volume=lv.tagged(logical_volumes.OPENED_TAG),
                state=(records.state(placeholder) if placeholder is not None
                       else _('unknown')))

    def delete_destination(self, names, placeholder):
        """Throw away a destination that nobody has written.

        The move is aborted, so that it is never switched.

        :param placeholder: its row, which knows the session; None if gone
        :raises: DatabaseBehind if it has been a volume's home
        """
        self.refuse_opened(names, placeholder)
        # The gate stays shut until nothing is above it. An unwritten clone
        # has no metadata to commit, so its removal does not wait there.
        self.remove_devices(names, placeholder, HANDLE, GATE, SOURCE)
        lv = self._backend.logical_volume(names)
        if lv is not None:
            self._backend.group.delete(lv.name)
        steps.reached(Step.DELETED, names.name_id)
        self.forget_metadata(names)
