# SPDX-License-Identifier: Apache-2.0
"""Requests of a user, or of Nova for a user, to Cinder."""

import uuid

from lab import wait

MICROVERSION = '3.70'
BUSY = ('creating', 'downloading', 'uploading', 'attaching', 'detaching',
        'deleting', 'extending', 'reserved', 'reverting', 'backing-up',
        'restoring-backup')


class ApiError(Exception):
    """An error of an API, with its ``status`` and ``text``."""

    def __init__(self, response):
        super().__init__('%s %s: %s' % (
            response.status_code, response.url, response.text))
        self.status = response.status_code
        self.text = response.text


def answer(response):
    """Return a response's JSON, None if empty; raise ApiError for errors."""
    if response.status_code >= 400:
        raise ApiError(response)
    return response.json() if response.content else None


class User:
    """A project's view of the block storage service, with Nova's requests."""

    def __init__(self, lab, name='demo'):
        self.cloud = lab.cloud(name)
        self._session = self.cloud.block_storage
        self._admin = lab.cloud('operator').block_storage
        # Cinder lets only a service delete an attachment in use.
        self._service = lab.cloud('cinder').session.get_token()

    def request(self, method, path, body=None, **kwargs):
        """Send a request; returns the answer's JSON, None if empty."""
        kwargs.setdefault('microversion', MICROVERSION)
        return self._send(self._session, method, path, body, **kwargs)

    def as_admin(self, method, path, body=None):
        """Send a request as the operator, in the user's project."""
        return self._send(self._admin, method, path, body,
                          microversion=MICROVERSION)

    def _send(self, session, method, path, body, **kwargs):
        return answer(session.request(
            path, method, json=body, raise_exc=False,
            headers={'X-Service-Token': self._service}, **kwargs))

    def service_up(self, query, what, timeout=60):
        """Wait until Cinder takes a service for up: since a heartbeat of it.

        :param query: which one, such as ``binary=cinder-backup``
        :param what: its name, for the error
        """
        wait.until(lambda: 'up' in [each['state'] for each in self.as_admin(
            'GET', '/os-services?' + query)['services']],
            what + ' to be up', timeout)

    def make_bootable(self, volume_id, properties):
        """Make a volume bootable, with an image's properties."""
        path = '/volumes/%s/action' % volume_id
        self.request('POST', path, {'os-set_bootable': {'bootable': True}})
        self.request('POST', path, {
            'os-set_image_metadata': {'metadata': properties}})

    def encrypted_type(self, name, provider='luks'):
        """Create a volume type with encryption unless it exists."""
        types = self.as_admin('GET', '/types')['volume_types']
        if name in (each['name'] for each in types):
            return
        made = self.as_admin('POST', '/types', {'volume_type': {
            'name': name, 'extra_specs': {
                'volume_backend_name': 'dmclone'}}})['volume_type']
        self.as_admin('POST', '/types/%s/encryption' % made['id'], {
            'encryption': {'provider': provider, 'control_location':
                           'front-end', 'cipher': 'aes-xts-plain64',
                           'key_size': 256}})

    def volume(self, volume_id):
        """Return a volume as the API shows it."""
        return self.request('GET', '/volumes/' + volume_id)['volume']

    def create_volume(self, size=1, **attributes):
        """Create a volume and wait until it is available."""
        body = {'volume': dict(attributes, size=size)}
        volume = self.request('POST', '/volumes', body)['volume']
        return self.settled(volume['id'], 'available')

    def settled(self, volume_id, *expected, timeout=60):
        """Wait until a volume has left the transient states.

        :raises AssertionError: if it ends in none of the expected states
        """
        volume = wait.until(
            lambda: self.unless_busy(volume_id),
            'volume %s to settle' % volume_id, timeout)
        assert volume['status'] in expected, volume
        return volume

    def unless_busy(self, volume_id):
        """Return a volume, or None while it is in a transient state."""
        volume = self.volume(volume_id)
        return None if volume['status'] in BUSY else volume

    def create_snapshot(self, volume_id, timeout=60):
        """Take a snapshot, also of a volume in use; returns its id."""
        path = '/snapshots/' + self.request('POST', '/snapshots', {
            'snapshot': {'volume_id': volume_id, 'force': True}})[
                'snapshot']['id']

        def available():
            status = self.request('GET', path)['snapshot']['status']
            assert 'error' not in status, status
            return status == 'available'
        wait.until(available, path + ' to be taken', timeout)
        return path.rpartition('/')[2]

    def delete_snapshot(self, snapshot_id, timeout=60):
        """Delete a snapshot and wait until it is gone."""
        path = '/snapshots/' + snapshot_id
        self.request('DELETE', path)

        def gone():
            try:
                status = self.request('GET', path)['snapshot']['status']
            except ApiError as error:
                return error.status == 404
            assert 'error' not in status, status
            return False
        wait.until(gone, path + ' to be deleted', timeout)

    def delete_volume(self, volume_id, timeout=60):
        """Delete a volume and wait until it is gone."""
        self.request('DELETE', '/volumes/' + volume_id)
        self.wait_gone(volume_id, timeout)

    def wait_gone(self, volume_id, timeout=60):
        """Wait until a volume is deleted."""
        def gone():
            try:
                status = self.volume(volume_id)['status']
            except ApiError as error:
                return error.status == 404
            assert 'error' not in status, status
            return False
        wait.until(gone, 'volume %s to be deleted' % volume_id, timeout)

    def connector(self, node, **changes):
        """Return the connector that Nova on a node would send."""
        return dict({'host': node.name, 'ip': node.ip,
                     'initiator': initiator(node),
                     'platform': 'x86_64', 'os_type': 'linux',
                     'multipath': False, 'do_local_attach': False,
                     'mountpoint': '/dev/vdb'}, **changes)

    def reserve(self, volume_id, instance=None):
        """Create an attachment without a connector; returns its id."""
        body = {'attachment': {'volume_uuid': volume_id,
                               'instance_uuid': instance or uuid4()}}
        return self.request('POST', '/attachments',
                            body)['attachment']['id']

    def connect(self, attachment_id, connector):
        """Send the connector of a reserved attachment."""
        body = {'attachment': {'connector': connector}}
        return self.request('PUT', '/attachments/' + attachment_id,
                            body)['attachment']

    def attach(self, volume_id, node, instance=None, complete=True):
        """Attach a volume as Nova does, in one request.

        :param complete: complete the attachment, too
        :returns: the attachment, with the path in its connection_info
        """
        body = {'attachment': {'volume_uuid': volume_id,
                               'instance_uuid': instance or uuid4(),
                               'connector': self.connector(node)}}
        attachment = self.request('POST', '/attachments', body)['attachment']
        if complete:
            self.complete(attachment['id'])
        return attachment

    def complete(self, attachment_id):
        """Complete an attachment: the guest has its device."""
        self.request('POST', '/attachments/%s/action' % attachment_id,
                     {'os-complete': None})

    def detach(self, attachment_id):
        """Delete an attachment."""
        self.request('DELETE', '/attachments/' + attachment_id)

    def detach_all(self, volume_id):
        """Delete all attachments of a volume."""
        for attachment in self.attachments(volume_id):
            self.detach(attachment['id'])

    def attachments(self, volume_id):
        """Return a volume's attachments."""
        return self.request('GET', '/attachments?volume_id=' + volume_id)[
            'attachments']

    def messages(self, volume_id):
        """Return the user messages about a volume."""
        return self.request('GET', '/messages?resource_uuid=' + volume_id)[
            'messages']


def uuid4():
    """Return a new id, for example of an instance."""
    return str(uuid.uuid4())


def initiator(node):
    """Return a node's iSCSI name."""
    text = node.run('cat /etc/iscsi/initiatorname.iscsi')
    return text.strip().splitlines()[-1].partition('=')[2]


def path(attachment):
    """Return the path of an attached volume on its node."""
    return attachment['connection_info']['device_path']
