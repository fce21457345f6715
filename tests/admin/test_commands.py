# SPDX-License-Identifier: Apache-2.0
"""Cinder's own commands, on the rows of volumes that are moving.

Each is refused with a reason, or done and right; afterwards all converges.
Each is given to a volume of its own, all volumes of a state at once.
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import time

from dmclone_driver.names import Names
from dmclone_driver.steps import Step
from tests.admin import hold
from tests.admin import logs
from tests.admin import operations
from tests.admin import types
from tests.crash import base
from tests.crash import cases
from tests.crash import stops
from tests.e2e import user as user_module
from tests.lab import paths
from tests.lab import wait

#: Where the outcomes go, one file for each state.
OUTCOMES = pathlib.Path(os.environ.get('DMCLONE_ADMIN_OUTCOMES') or
                        paths.STATE / 'admin-outcomes')
#: Requests at a time, of those that do something.
AT_ONCE = 6
#: Seconds until volumes are in a state; until a request has come to its end
#: while they are; and afterwards, when all converges.
TO_PREPARE, TO_ANSWER, TO_CONVERGE = 120, 45, 300
#: Seconds until a host is put back: Cinder asks for capacities each minute.
TO_PUT_BACK = 90
#: In which nothing holds the lock of a volume.
FREE = ('prepared', 'hydrating')
STATES = ('prepared', 'gate shut', 'hydrating', 'complete')
#: Where the volumes that are held up by the driver stop.
STEPS = {'gate shut': Step.OPENING, 'complete': Step.COMPLETE}
BUSY = (*user_module.BUSY, 'retyping', 'managing', 'unmanaging',
        'restoring-backup', 'awaiting-transfer')
MIGRATES = ('starting', 'migrating', 'completing')


class CommandsTest(base.StoppingTest):
    """All states, one after the other."""

    OPTIONS = hold.OPTIONS

    def setUp(self):
        super().setUp()
        OUTCOMES.mkdir(parents=True, exist_ok=True)
        types.make(self.user)
        self.types = {each['name']: each['id'] for each in
                      self.user.as_admin('GET', '/types')['volume_types']}
        stranger = self.lab.cloud('admin').block_storage
        self.other_project = lambda method, path, body=None: (
            user_module.answer(stranger.request(
                path, method, json=body, raise_exc=False,
                microversion=user_module.MICROVERSION)))
        self.logs = logs.Logs(self, ('ERROR', 'WARNING'))

    def test_prepared(self):
        self.ask_all('prepared')

    def test_gate_shut(self):
        self.ask_all('gate shut')

    def test_hydrating(self):
        self.ask_all('hydrating')

    def test_complete(self):
        self.ask_all('complete')

    def ask_all(self, state):
        """Give all commands to volumes in a state, and let all converge."""
        requests = [operations.Request(operation, row, state, self)
                    for operation in operations.OPERATIONS
                    for row in operation.rows]
        with self.brought_there(state, requests) as pool:
            asked = [pool.submit(self.ask, request) for request in requests]
            self.wait_for_outcomes(requests)
            self.go_on()
            concurrent.futures.wait(asked)

    def test_update_host(self):
        """It changes all rows of a host; each is put back while it waits."""
        requests = [operations.Request(operations.UPDATE_HOST, 'VP', state,
                                       self) for state in STATES]
        with self.brought_there('update_host', requests):
            there = ['%s@dmclone#dmclone' % node.name
                     for node in (self.home, self.peer)]
            for one, other in (there, reversed(there)):
                hosts = self.hosts()
                self.lab.control.manage(
                    'cinder-manage', 'volume', 'update_host',
                    '--currenthost', one, '--newhost', other)
                self.assertEqual({other}, set(self.hosts().values()))
                wait.until(lambda: self.hosts() == hosts,
                           'all hosts to be put back', TO_PUT_BACK)
            for request in requests:
                request.answered, request.outcome = True, 'done'

    def hosts(self):
        """Return {row id: host}."""
        return dict(self.lab.sql(
            "SELECT id, host FROM volumes WHERE deleted = 0"))

    @contextlib.contextmanager
    def brought_there(self, name, requests):
        """Have volumes in their states for a while; then all converges."""
        originals = self.bring_there(requests)
        failed = 'not looked at'
        try:
            with concurrent.futures.ThreadPoolExecutor(
                    len(requests), initializer=self.lab.enter) as pool:
                try:
                    yield pool
                finally:
                    self.go_on()
            failed = self.converge(requests, originals)
        finally:
            self.write_down(name, requests, failed)
        self.assertEqual({}, failed)
        self.end(requests)

    # Before

    def bring_there(self, requests):
        """Bring volumes to states; returns the checksums of their parts."""
        self.create(requests)
        for request in requests:
            request.seed = request.volume_id
        originals = self.fill(requests)
        self.first = self.attach_all(self.home, requests)
        self.attach_all(self.peer, requests)
        for request in requests:
            request.placeholder_id, = self.placeholders(request.volume_id)
            if request.state in STEPS:
                stops.stop_at(base.FOLDER, request.volume_id,
                              STEPS[request.state], self.peer.name)
            elif request.state == 'hydrating':
                stops.hold_up(base.FOLDER, request.volume_id)
        moving = [request for request in requests
                  if request.state != 'prepared']
        self.at_once([functools.partial(self.user.detach, self.first[request])
                      for request in moving], 4 * AT_ONCE)
        wait.until(lambda: all(map(self.is_there, moving)),
                   'all volumes', TO_PREPARE, log=lambda: '\n'.join(
                       '%s is not %s' % (request.volume_id, request.state)
                       for request in moving if not self.is_there(request)))
        self.write(self.peer, moving)
        self.write(self.home, set(requests) - set(moving))
        wait.until(lambda: all(
            request.state == 'gate shut' or
            stops.durable(base.FOLDER, request.volume_id)
            for request in requests), 'what guests have written', 60)
        return originals

    def attach_all(self, node, requests):
        instances = self.instances = getattr(self, 'instances', {})
        attachments = {}

        def attach(request):
            attachments[request] = self.user.attach(
                request.volume_id, node, instances.setdefault(
                    request, user_module.uuid4()))['id']
        self.at_once([lambda request=request: attach(request)
                      for request in requests], AT_ONCE)
        return attachments

    def is_there(self, request):
        """Whether a volume is in its state."""
        if request.state in STEPS:
            return stops.stopped(base.FOLDER, request.volume_id)
        return hold.is_held(self, request.placeholder_id)

    def write(self, node, requests):
        """Have guests write a block, which waits where the gate is shut."""
        names = self.name_ids()
        node.run('\n'.join(cases.WRITE.format(
            id=request.volume_id, path=Names(names[request.volume_id]).path(),
            at=cases.GUEST_BLOCK, folder=stops.ON_NODE)
            for request in requests))

    def name_ids(self):
        """Return {volume id: id that its logical volume is named after}."""
        return dict(self.lab.sql("SELECT id, COALESCE(_name_id, id) FROM "
                                 "volumes WHERE deleted = 0"))

    # The requests

    def ask(self, request):
        """Ask; where the state of the row is in the way, reset that first."""
        try:
            if not request.operation.after_reset:
                self.ask_once(request)
            if not request.answered:
                request.reset = True
                request.action(**{'os-reset_status': operations.RESET})
                self.ask_once(request)
        except Exception as error:
            request.outcome, request.reason = 'FAILED', repr(error)

    def ask_once(self, request):
        request.since = len(self.logs.lines)
        try:
            request.operation.ask(request)
            request.answered = True
        except user_module.ApiError as error:
            request.refusal = '%s: %s' % (error.status, error.text[:300])
        except IndexError:
            request.refusal = 'there is no attachment'

    def see(self, request):
        """Find out what has become of a request, unless that is known."""
        if request.outcome:
            return
        if not request.answered:
            if request.refusal and request.reset:
                request.outcome, request.reason = 'refused', request.refusal
        elif request.operation.done(request):
            request.outcome = 'done'
        elif not self.is_busy(request):
            request.reason = self.logs.said(*request.ids,
                                            since=request.since)
            request.outcome = 'refused' if request.reason else None

    def is_busy(self, request):
        """Whether Cinder is at work on the row."""
        found = request.columns('status', 'migration_status')
        return found and (found[0] in BUSY or found[1] in MIGRATES)

    def wait_for_outcomes(self, requests):
        """Wait for what does not wait for the state to end.

        What a placeholder's node does has to come to its end: it ends with
        the transfer.
        """
        def known():
            for request in requests:
                if request.row == 'P' or request.state in FREE:
                    self.see(request)
            return all(request.outcome for request in requests)
        self.logs.wait_for(TO_ANSWER, known)
        for request in requests:
            if request.row == 'P' and not request.outcome:
                request.outcome, request.reason = 'FAILED', 'no outcome'

    def go_on(self):
        stops.go_on(base.FOLDER)
        hold.resume_all(self.peer)

    # Afterwards

    def converge(self, requests, originals):
        """Put right what was asked for; returns {request: what is wrong}."""
        end = time.monotonic() + TO_CONVERGE
        left = {request: 'not looked at' for request in requests}
        while left and time.monotonic() < end:
            self.logs.read()
            left = {request: wrong for request, wrong in (
                (request, self.go_further(request)) for request in left)
                if wrong}
            time.sleep(1)
        now = self.parts()
        failed = {request.key: str(left.get(request) or self.is_wrong(
            request, originals, now)) for request in requests}
        return {key: wrong for key, wrong in failed.items()
                if wrong != 'None'}

    def go_further(self, request):
        """Do the next thing for a volume; returns what is missing yet."""
        try:
            self.see(request)
            if not request.outcome or request.outcome == 'FAILED':
                return request.reason or 'no outcome'
            if not request.right:
                missing = self.put_right(request)
                if missing:
                    return missing
                request.right = True
            rows = self.states().get(request.volume_id, [])
            if self.is_deleted(request):
                return rows
            return rows if len(rows) != 1 or rows[0][3] else None
        except Exception as error:
            return repr(error)

    @staticmethod
    def is_deleted(request):
        """Whether somebody has asked to delete the volume, and was obeyed."""
        return (request.row == 'V' and request.outcome == 'done' and
                'delete' in request.operation.name)

    def put_right(self, request):
        """Leave an available volume, as an operator and its user would.

        :returns: what has to be waited for
        """
        operation, reset = request.operation, (
            request.operation.name.startswith('reset'))
        if not reset and self.is_busy(request):
            return 'it is busy'
        if not request.undone:
            operation.put_right(request)
            request.undone = True
        if self.is_deleted(request):
            return None
        attachments = sorted(
            self.user.attachments(request.volume_id),
            key=lambda each: each['id'] != self.first[request])
        right = 'in-use' if attachments else 'available'
        if self.user.volume(request.volume_id)['status'] != right:
            self.user.as_admin(
                'POST', '/volumes/%s/action' % request.volume_id,
                {'os-reset_status': {'status': right}})
        for attachment in attachments:
            self.user.detach(attachment['id'])
        return 'it was in use' if attachments else None

    def is_wrong(self, request, originals, now):
        """Return what is wrong with a volume's data, if anything."""
        if self.is_deleted(request):
            return None
        original, parts = (originals[request.seed],
                           now.get(request.volume_id))
        if parts is None:
            return 'its data is not to be found'
        right = [original[0], self.written(request.seed), original[2]]
        return None if parts == right else 'it holds %s instead of %s' % (
            parts, right)

    def end(self, requests):
        """Delete the volumes; then nothing may be left of anything."""
        self.at_once([lambda request=request: self.user.delete_volume(
            request.volume_id, TO_PREPARE) for request in requests
            if not self.is_deleted(request)], AT_ONCE)
        self.nothing_left(base.TO_PREPARE)

    def write_down(self, name, requests, failed):
        """Keep the outcomes for the table, and the reasons."""
        (OUTCOMES / (name + '.json')).write_text(json.dumps([{
            'operation': request.operation.name, 'row': row,
            'state': request.state, 'outcome': request.outcome,
            'reset': request.reset, 'refusal': request.refusal,
            'reason': request.reason, 'wrong': failed if isinstance(
                failed, str) else failed.get(request.key),
            'volume': request.seed, 'placeholder': request.placeholder_id}
            for request in requests for row in request.row], indent=1))
