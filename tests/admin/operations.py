# SPDX-License-Identifier: Apache-2.0
"""Operations of an administrator, or a user, on a volume's row.

Each operation sends a request, checks later whether Cinder has done it, and
undoes its effects, as its user would.
"""

import dataclasses
import functools

from lab.common import user as user_module
from tests.admin import types

#: The reset by an operator whose command is refused because of a row's state.
RESET = {'status': 'available', 'attach_status': 'detached',
         'migration_status': 'none'}
STATUSES = ('available', 'error', 'in-use', 'creating', 'deleting',
            'maintenance')


class Refused(Exception):
    """A program, not the API, has refused a request."""


def asked_at_once(request):
    """Return whether a request that ends with its answer is done."""
    return request.answered


@dataclasses.dataclass(frozen=True)
class Operation:
    """One row of the table."""

    name: str
    #: Sends a Request; raises an ApiError if the API refuses it.
    ask: object
    #: Returns whether a Request has been done.
    done: object = asked_at_once
    #: Undoes the effects of a Request that has ended.
    put_right: object = lambda request: None
    #: Whether the row's state is reset first, since others are refused.
    after_reset: bool = False
    #: Whether it is not repeated after a reset, since it is a reset itself.
    once: bool = False


@dataclasses.dataclass(eq=False)
class Request:
    """An operation on one row of a volume."""

    operation: Operation
    row: str
    volume: object
    test: object
    #: Whether the row's state was reset after a refusal by the API.
    reset: bool = False
    asked: bool = False
    answered: bool = False
    #: The error of the API.
    refusal: str = None
    #: The outcome in the table; None until it is known.
    outcome: str = None
    reason: str = ''
    #: The number of log lines with errors when it was sent.
    since: int = 0
    #: Ids of created objects, {kind: id}.
    made: dict = dataclasses.field(default_factory=dict)

    @property
    def name(self):
        return '%s of %s' % (self.operation.name, self.row)

    @property
    def ids(self):
        """Return the ids that a log line about the request may have."""
        return [self.target, *self.made.values()]

    @property
    def target(self):
        """Return the id of the request's row."""
        return (self.volume.volume_id if self.row == 'V' else
                self.volume.placeholder_id)

    def admin(self, method, path, body=None):
        return self.test.user.as_admin(method, path, body)

    def action(self, **body):
        return self.admin('POST', '/volumes/%s/action' % self.target, body)

    def columns(self, *names):
        """Return columns of the row, None if it is deleted."""
        rows = self.test.lab.sql(
            "SELECT %s FROM volumes WHERE deleted = 0 AND id = '%s'" % (
                ', '.join(names), self.target))
        return rows[0] if rows else None

    def place(self):
        """Return the name and host of the row's logical volume."""
        return self.columns('COALESCE(_name_id, id)', 'host')

    def column(self, name):
        found = self.columns(name)
        return found and found[0]


def _act(name, request, **body):
    request.action(**{name: body})


def _reset(name, **more):
    return Operation('reset-state ' + name, functools.partial(
        _act, 'os-reset_status', **more), once=True)


def _is_gone(request):
    return request.columns('id') is None


def _delete(request):
    request.admin('DELETE', '/volumes/' + request.target)


def _manage_delete(request):
    said = request.test.lab.control.manage(
        'cinder-manage', 'volume', 'delete', request.target)
    if 'Volume is in-use' in said:
        raise Refused(said)


def _attachments(request):
    return request.admin('GET', '/attachments?all_tenants=1&volume_id=' +
                         request.target)['attachments']


def _detach(request):
    """Delete the home's attachment, if there is one, as Nova does."""
    for each in request.test.attachments(request.volume)[:1]:
        request.admin('DELETE', '/attachments/' + each['id'])


def _force_detach(request):
    found = [{'attachment_id': each['id'], 'connector': request.test.user.
              connector(request.test.peer)} for each in
             _attachments(request)[-1:]]
    _act('os-force_detach', request, **(found or [{}])[0])


def _attach(request):
    request.made['attachment'] = request.admin(
        'POST', '/attachments', {'attachment': {
            'volume_uuid': request.target,
            'instance_uuid': user_module.uuid4(),
            'connector': request.test.user.connector(request.test.home)}})[
                'attachment']['id']


def _end_attachment(request):
    for each in _attachments(request):
        request.admin('DELETE', '/attachments/' + each['id'])


def _is_larger(request):
    return request.column('size') == 2


def _snapshot(request):
    request.made['snapshot'] = request.admin('POST', '/snapshots', {
        'snapshot': {'volume_id': request.target, 'force': True}})[
            'snapshot']['id']


def _snapshot_status(request):
    rows = request.test.lab.sql("SELECT status FROM snapshots WHERE "
                                "id = '%s'" % request.made['snapshot'])
    return rows[0][0]


def _delete_snapshot(request):
    if 'snapshot' in request.made:
        request.admin('DELETE', '/snapshots/' + request.made['snapshot'])


def _upload(request):
    request.made['image'] = request.admin(
        'POST', '/volumes/%s/action' % request.target,
        {'os-volume_upload_image': {
            'image_name': 'dmclone-admin', 'disk_format': 'raw',
            'container_format': 'bare', 'force': True}})[
                'os-volume_upload_image']['image_id']


def _image(request):
    return request.test.user.cloud.image.find_image(request.made['image'])


def _is_uploaded(request):
    image = _image(request)
    return image is not None and image.status == 'active'


def _delete_image(request):
    if 'image' in request.made and _image(request):
        request.test.user.cloud.image.delete_image(request.made['image'])


def _transfer(request, giver=None, taker=None):
    """Give a volume to another project."""
    giver, taker = (giver or request.admin,
                    taker or request.test.other_project)
    transfer = giver('POST', '/volume-transfers', {
        'transfer': {'volume_id': request.target}})['transfer']
    try:
        taker('POST', '/volume-transfers/%s/accept' % transfer['id'],
              {'accept': {'auth_key': transfer['auth_key']}})
    except user_module.ApiError:
        giver('DELETE', '/volume-transfers/' + transfer['id'])
        raise


def _give_back(request):
    if request.row == 'V' and request.answered:
        _transfer(request, request.test.other_project,
                  request.test.user.request)


def _retype(name, request):
    _act('os-retype', request, new_type=name, migration_policy='never')


def _is_of_type(name, request):
    type_id, status = request.columns('volume_type_id', 'status')
    return status != 'retyping' and type_id == request.test.types[name]


def _migrate(request, **more):
    node, _, pool = request.column('host').partition('@')
    other, = {request.test.home.name, request.test.peer.name} - {node}
    request.made['host'] = '%s@%s' % (other, pool)
    _act('os-migrate_volume', request, host=request.made['host'], **more)


def _is_migrated(request):
    found = request.columns('migration_status', 'host')
    return found == ('success', request.made['host'])


def _manage(request):
    """Manage a row's logical volume as if Cinder did not know it."""
    name_id, host = request.place()
    request.made['volume'] = _take_over(request, name_id, host)


def _take_over(request, name_id, host):
    return request.admin('POST', '/manageable_volumes', {
        'volume': {'host': host, 'ref': {
            'source-name': 'volume-' + name_id}}})['volume']['id']


def _is_managed(request):
    rows = request.test.lab.sql("SELECT status FROM volumes WHERE "
                                "id = '%s'" % request.made['volume'])
    return rows[0][0] == 'available'


def _delete_managed(request):
    if 'volume' in request.made:
        request.admin('DELETE', '/volumes/' + request.made['volume'])


def _unmanage(request):
    request.made['name_id'], request.made['host'] = request.place()
    _act('os-unmanage', request)


def _manage_again(request):
    """Manage an unmanaged volume again; it gets another id."""
    if request.row == 'V' and _is_gone(request):
        request.volume.volume_id = request.test.user.settled(_take_over(
            request, request.made['name_id'], request.made['host']),
            'available')['id']


_ALL = (
    *(_reset(status, status=status) for status in STATUSES),
    _reset('none (migration status)', migration_status='none'),
    _reset('available and none', status='available',
           migration_status='none'),
    Operation('delete', _delete, _is_gone),
    Operation('force-delete', functools.partial(_act, 'os-force_delete'),
              _is_gone),
    Operation('cinder-manage volume delete', _manage_delete, _is_gone),
    Operation('attach', _attach, put_right=_end_attachment),
    Operation('detach', _detach),
    Operation('force-detach', _force_detach),
    Operation('extend', functools.partial(_act, 'os-extend', new_size=2),
              _is_larger),
    Operation('snapshot', _snapshot, lambda request: _snapshot_status(
        request) == 'available', _delete_snapshot),
    Operation('upload to image', _upload, _is_uploaded, _delete_image),
    Operation('transfer', _transfer, put_right=_give_back),
    Operation('retype, equal content', functools.partial(
        _retype, types.EQUAL), functools.partial(_is_of_type, types.EQUAL)),
    Operation('retype', functools.partial(_retype, types.OTHER),
              functools.partial(_is_of_type, types.OTHER)),
    Operation('migrate', _migrate, _is_migrated, after_reset=True),
    Operation('migrate, host copy', functools.partial(
        _migrate, force_host_copy=True), _is_migrated, after_reset=True),
    Operation('unmanage', _unmanage, _is_gone, _manage_again),
    Operation('manage the logical volume', _manage, _is_managed,
              _delete_managed))
OPERATIONS = {operation.name: operation for operation in _ALL}
#: Changes all rows of a host at once, so it has a separate test.
UPDATE_HOST = Operation('cinder-manage volume update_host', ask=None)

_RESETS = [name for name in OPERATIONS if name.startswith('reset-state')]
#: The requests for each volume, one after the other. The last one of a volume
#: may have to wait until the volume leaves its state.
CHAINS = (
    [*(('V', name) for name in _RESETS), ('V', 'delete')],
    [*(('P', name) for name in _RESETS), ('V', 'force-delete')],
    [('P', 'delete'), ('P', 'force-delete'),
     ('P', 'cinder-manage volume delete'),
     ('V', 'cinder-manage volume delete')],
    [('P', 'attach'), ('P', 'force-detach'), ('P', 'extend'),
     ('V', 'detach')],
    [('P', 'snapshot'), ('P', 'upload to image'), ('P', 'transfer'),
     ('V', 'force-detach')],
    [('P', 'retype, equal content'), ('P', 'retype'), ('V', 'extend')],
    [('P', 'migrate'), ('P', 'migrate, host copy'), ('V', 'snapshot')],
    [('P', 'unmanage'), ('P', 'manage the logical volume'),
     ('V', 'upload to image')],
    [('V', 'transfer')],
    [('V', 'retype, equal content'), ('V', 'retype')],
    [('V', 'migrate')],
    [('V', 'migrate, host copy')],
    [('V', 'unmanage')],
    [('V', 'manage the logical volume')])
