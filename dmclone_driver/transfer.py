# SPDX-License-Identifier: Apache-2.0
"""The home's side of a transfer: prepare, commit, or roll back.

::

    attach on a peer      begin -> export -> prepare -> [commit -> activate]
    another attachment    ... stays prepared until one of the two goes:
      the home's goes     commit -> activate
      the peer's goes     discard (the peer abandons) -> unexport -> destroy
      a guest writes      the peer commits by itself

See the documentation, "When something dies".
"""

import uuid

from cinder.scheduler.filters import extra_specs_ops
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import excutils
from oslo_utils import units

from dmclone_driver import attachments
from dmclone_driver import exception
from dmclone_driver import handles
from dmclone_driver.i18n import _
from dmclone_driver import identity
from dmclone_driver.names import Names
from dmclone_driver import peer_api
from dmclone_driver.privsep import block
from dmclone_driver import teardown

LOG = logging.getLogger(__name__)


class Transfer:
    """Volumes whose home is this node, on their way to a peer.

    Callers hold the volume's lock and have just read its row.
    """

    def __init__(self, backend, source, teardown):
        self._backend = backend
        self._source = source
        self._teardown = teardown
        #: Volumes with a prepared transfer, {volume id: placeholder id}:
        #: where to look for orphans, found again at start.
        self.prepared = {}

    def move(self, context, volume, peer, node):
        """Make a volume usable on a peer; returns its handle's path there.

        :param node: the connector's host
        :raises: TransferRefused, TransferFailed
        """
        self._make_way(context, volume, peer, node)
        names = Names(volume.name_id)
        try:
            description = self._check(context, volume, peer)
        except (processutils.ProcessExecutionError, OSError) as error:
            raise self._refused(volume, peer, str(error))
        placeholder_id = str(uuid.uuid4())
        # First: the database's answer may be lost, and it is an orphan then.
        self.prepared[volume.id] = placeholder_id
        identity.begin(context, volume, placeholder_id, peer,
                       description['initiator'], node)
        try:
            # It says that it is moving now, which the export is held against.
            volume.refresh()
            self._source.export(context, volume, description['initiator'])
            path = self._backend.client.prepare(
                context, peer.backend_host,
                self._backend.configuration.dmclone_prepare_timeout,
                volume_id=volume.id, placeholder_id=placeholder_id,
                size=block.size(names.path()),
                location=volume.provider_location,
                auth=volume.provider_auth)
            volume.refresh()
            if not attachments.live(volume, node):
                raise exception.TransferRefused(
                    volume=volume.id, host=node,
                    reason=_('the attachment was deleted meanwhile'))
            if not attachments.elsewhere(volume, node):
                # As long as there is a way back if that fails.
                handles.make_durable(names)
                self.commit(context, volume)
        except Exception as error:
            with excutils.save_and_reraise_exception() as reraise:
                volume.refresh()
                stays = self.roll_back(context, volume, placeholder_id)
                if not isinstance(error, exception.TransferRefused):
                    reraise.reraise = False
            if not stays:
                raise self._has_moved(volume, node, peer.host)
            raise exception.TransferFailed(
                volume=volume.id, host=peer.host,
                reason=getattr(error, 'msg', None) or str(error))
        return path

    def _make_way(self, context, volume, peer, node):
        """Discard a prepared transfer that nobody waits for.

        :raises: TransferRefused if somebody does
        """
        placeholder_id = identity.prepared_transfer(volume)
        if placeholder_id is None:
            return
        placeholder = identity.get(context, placeholder_id)
        if self._wanted(volume, placeholder):
            raise exception.TransferRefused(
                volume=volume.id, host=node,
                reason=_('it is already prepared on %s for a migration that '
                         'has not ended; finish or abort that first')
                % placeholder.host)
        if not self.roll_back(context, volume):
            raise self._has_moved(volume, node, placeholder.host)
        volume.refresh()

    @staticmethod
    def _has_moved(volume, node, host):
        return exception.TransferRefused(
            volume=volume.id, host=node,
            reason=_('it has just moved to %s; try again') % host)

    @staticmethod
    def _wanted(volume, placeholder):
        """Whether an attachment on the peer has come out of a transfer."""
        return placeholder is not None and bool(attachments.on_node(
            volume, identity.record(placeholder).node))

    def _check(self, context, volume, peer):
        """Refuse early what would fail late; returns the peer's answer."""
        names = Names(volume.name_id)
        if self._backend.group.lv_has_snapshot(volume.name):
            raise self._refused(volume, peer, _(
                'it has snapshots, which stay on %s; delete them, or attach '
                'the volume there') % self._backend.node)
        if volume.provider_location:
            raise self._refused(volume, peer, _(
                'it is in use over iSCSI, by an image, backup or migration '
                'task; wait for that to end'))
        if handles.is_sick(names):
            raise self._refused(volume, peer, _(
                'the metadata of the copy that it waits for has failed on '
                '%s; mend its device and restart that node')
                % self._backend.node)
        if handles.is_open(names) and not attachments.elsewhere(
                volume, peer.node):
            raise self._refused(volume, peer, _(
                'device %s is still open on its home') % names.path())
        try:
            description = self._backend.client.describe(context,
                                                        peer.backend_host)
        except (peer_api.PeerUnreachable, peer_api.PeerFailed) as error:
            raise self._refused(volume, peer, error.msg)
        self._refuse_unwanted(volume, peer,
                              description.get('capabilities', {}))
        # What is left there of an earlier transfer has the same names.
        self._teardown.ask_again(context, volume.id)
        needed = block.size(names.path()) / units.Gi
        if description['free_gb'] < needed:
            raise self._refused(volume, peer, _(
                'it needs %(needed)d GiB, and the volume group there has '
                'only %(free).2f GiB left') % {
                    'needed': needed, 'free': description['free_gb']})
        return description

    def _refuse_unwanted(self, volume, peer, capabilities):
        """Keep a volume from where its type would not let it be created.

        Cinder's scheduler asks before a creation, not before an attach.
        """
        extra_specs = volume.volume_type and volume.volume_type.extra_specs
        for key, wanted in (extra_specs or {}).items():
            name = key.removeprefix('capabilities:')
            if name in capabilities and not extra_specs_ops.match(
                    str(capabilities[name]), wanted):
                raise self._refused(volume, peer, _(
                    'its type wants %(key)s %(wanted)s, and there it is '
                    '%(there)s') % {'key': name, 'wanted': wanted,
                                    'there': capabilities[name]})

    @staticmethod
    def _refused(volume, peer, reason):
        return exception.TransferRefused(volume=volume.id, host=peer.node,
                                         reason=reason)

    def commit(self, context, volume):
        """Make the prepared destination the volume's home.

        From here on the only way is forward: a peer that does not answer
        finds the commit in the database when it is back.
        """
        placeholder_id = identity.prepared_transfer(volume)
        placeholder = identity.get(context, placeholder_id)
        names = Names(volume.name_id)
        first = identity.commit(context, volume.id, placeholder_id)
        self.prepared.pop(volume.id, None)
        volume.refresh()
        if not first:
            # The peer has, since its guest writes, and goes on by itself.
            return
        sealed = False
        try:
            # Before the other gate opens: there is only one writer.
            handles.seal(names)
            sealed = True
        except (processutils.ProcessExecutionError, OSError):
            LOG.exception('The source %s could not be sealed yet.',
                          names.name_id)
        self._teardown.ask(context, placeholder, teardown.ACTIVATE, sealed)

    def roll_back(self, context, volume, placeholder_id=None):
        """Undo a prepared transfer; can be repeated.

        :param placeholder_id: of the transfer, if the peer may have
            abandoned it already
        :returns: False if the transfer was committed instead, since the
            destination was written
        """
        placeholder_id = placeholder_id or identity.prepared_transfer(volume)
        if placeholder_id is None:
            return True
        placeholder = identity.get(context, placeholder_id)
        if (placeholder is not None and
                identity.volume_of(placeholder) != volume.id):
            # The row is Cinder's copy of that of a volume that is moving.
            return True
        if placeholder is not None and identity.state(placeholder) in (
                identity.COMMITTED, identity.RELEASED):
            # The answer was lost: it stands for the source by now.
            self.prepared.pop(volume.id, None)
            volume.refresh()
            return False
        gone = placeholder is None or self._discard(context, placeholder)
        if gone is False:
            if identity.prepared_transfer(volume) == placeholder_id:
                self.commit(context, volume)
            return False
        if not identity.abandon(context, volume.id, placeholder_id):
            volume.refresh()
            return False
        self.prepared.pop(volume.id, None)
        self._source.unexport(Names(volume.name_id))
        if gone and placeholder is not None:
            self._teardown.forget_destination(context, placeholder)
        elif placeholder is not None:
            self._teardown.ask(context, placeholder, teardown.DISCARD)
        volume.refresh()
        return True

    def _discard(self, context, placeholder):
        """Have the peer discard; None if it does not answer.

        Then the placeholder stays, abandoned: no commit can follow, so the
        gate will never be opened, and the peer cleans up when it is back.
        """
        try:
            return self._backend.client.discard(
                context, identity.backend_of(placeholder), placeholder.id)
        except (peer_api.PeerUnreachable, peer_api.PeerFailed) as error:
            LOG.warning('Destination %(id)s on %(host)s is abandoned, but '
                        'not yet removed: %(error)s.',
                        {'id': placeholder.id, 'host': placeholder.host,
                         'error': error.msg})
            return None

    def discard_orphans(self, context):
        """Roll back prepared transfers whose attachment is gone.

        Asks the database nothing while none is prepared.
        """
        for volume_id, placeholder_id in list(self.prepared.items()):
            try:
                with self._backend.lock(volume_id):
                    self._discard_if_orphan(context, volume_id,
                                            placeholder_id)
            except Exception:
                LOG.exception('Transfer %(id)s of volume %(volume)s needs '
                              'another look.',
                              {'id': placeholder_id, 'volume': volume_id})

    def _discard_if_orphan(self, context, volume_id, placeholder_id):
        volume = identity.get(context, volume_id)
        if (volume is None or
                identity.prepared_transfer(volume) != placeholder_id):
            self._forget(context, volume_id, placeholder_id, volume)
            return
        placeholder = identity.get(context, placeholder_id)
        if placeholder is None or not attachments.live(
                volume, identity.record(placeholder).node):
            LOG.info('Transfer %(id)s of volume %(volume)s is discarded: its '
                     'attachment is gone.',
                     {'id': placeholder_id, 'volume': volume_id})
            self.roll_back(context, volume)

    def _forget(self, context, volume_id, placeholder_id, volume):
        """Forget a transfer that the peer has committed or abandoned."""
        placeholder = identity.get(context, placeholder_id)
        if (placeholder is not None and
                identity.state(placeholder) == identity.ABANDONED):
            self._teardown.ask(context, placeholder, teardown.DISCARD)
        if self.prepared.get(volume_id) == placeholder_id:
            self.prepared.pop(volume_id, None)
        if (volume is not None and self._backend.holds(volume) and
                not identity.prepared_transfer(volume)):
            self._source.unexport(Names(volume.name_id))

    def end_attachment(self, context, volume, connector):
        """One of two attachments goes while a transfer is prepared.

        :param connector: of the attachment that goes; None when forced
        :returns: whether the volume has moved away
        """
        placeholder = identity.get(context,
                                   identity.prepared_transfer(volume))
        if (connector and self._wanted(volume, placeholder) and
                not attachments.attached_on(
                    connector, identity.record(placeholder).node)):
            self.commit(context, volume)
            return True
        return not self.roll_back(context, volume)


def refuse_while_moving(context, volume, action):
    """Raise NotWhileMoving if a volume's data is in more than one place.

    :param action: a translated verb
    """
    other = identity.placeholder(
        context, identity.prepared_transfer(volume) or volume.name_id)
    if other is None or identity.state(other) == identity.RELEASED:
        # The volume does not need its source any more.
        return
    ends = [other.host.partition('@')[0], volume.host.partition('@')[0]]
    if identity.prepared_transfer(volume):
        ends.reverse()
    raise exception.NotWhileMoving(action=action, volume=volume.id,
                                   source=ends[0], destination=ends[1])
