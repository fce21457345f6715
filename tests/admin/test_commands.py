# SPDX-License-Identifier: Apache-2.0
"""Cinder's own commands on the rows of volumes that are moving.

Each is refused with a reason, or done correctly; then all volumes converge.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib

from dmclone_driver.node.names import Names
from dmclone_driver.steps import Step
from lab.common import user as user_module
from lab import paths
from lab import wait
from tests.admin import hold
from tests.admin import logs
from tests.admin import operations
from tests.admin import types
from tests.crash import base
from tests.crash import cases
from tests.crash import stops

#: The folder of the outcomes, with one file per state.
OUTCOMES = pathlib.Path(os.environ.get('DMCLONE_ADMIN_OUTCOMES') or
                        paths.STATE / 'admin-outcomes')
#: Maximum of volumes that are prepared at a time.
AT_ONCE = 2
#: Seconds until volumes are in a state, until a request has ended, until a
#: request ends that may have to wait for the end of the state, and until all
#: volumes have converged.
TO_PREPARE, TO_ANSWER, TO_SEE, TO_CONVERGE = 120, 120, 15, 300
#: Seconds until a host is corrected: Cinder requests capacities each minute.
TO_PUT_BACK = 120
STATES = ('prepared', 'gate closed', 'hydrating', 'complete')
#: The steps for the states in which the volume's lock is held.
STEPS = {'gate closed': Step.OPENING, 'complete': Step.COMPLETE}
BUSY = (*user_module.BUSY, 'retyping', 'managing', 'unmanaging')
MIGRATES = ('starting', 'migrating', 'completing')


@dataclasses.dataclass(eq=False)
class Volume:
    """A volume in a state, and its requests."""

    name: str
    state: str
    requests: list = dataclasses.field(default_factory=list)
    volume_id: str = None
    placeholder_id: str = None
    #: The id on which its data depends.
    seed: str = None
    #: The attachment on the home.
    first: str = None
    instance: str = dataclasses.field(default_factory=user_module.uuid4)
    #: Whether the effects of the last request have been undone.
    undone: bool = False
    #: The defect; None if there is none.
    wrong: str = 'not checked'

    @property
    def deleted(self):
        """Return whether a deletion of the volume was done."""
        return any(request.row == 'V' and request.outcome == 'done' and
                   'delete' in request.operation.name
                   for request in self.requests)


class CommandsTest(base.StoppingTest):
    """All commands in each state of a move."""

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

    def test_gate_closed(self):
        self.ask_all('gate closed')

    def test_hydrating(self):
        self.ask_all('hydrating')

    def test_complete(self):
        self.ask_all('complete')

    def ask_all(self, state):
        """Send all commands to volumes in a state; check the volumes."""
        volumes = [Volume('%s %d' % (state, number), state)
                   for number in range(len(operations.CHAINS))]
        for volume, chain in zip(volumes, operations.CHAINS):
            volume.requests = [operations.Request(
                operations.OPERATIONS[name], row, volume, self)
                for row, name in chain]
        with self.brought_there(state, volumes) as pool:
            asked = [pool.submit(self.ask_for_all_of, volume)
                     for volume in volumes]
            self.logs.wait_for(
                2 * TO_ANSWER, lambda: all(volume.requests[-1].asked
                                           for volume in volumes))
            self.logs.wait_for(TO_SEE, lambda: all(
                # A list, since each request has to be checked.
                [self.see(volume.requests[-1])  # noqa: C419
                 for volume in volumes]))
            self.go_on()
            for job in asked:
                job.result()

    def test_update_host(self):
        """It changes all rows of a host; the driver corrects each row."""
        volumes = [Volume(state, state) for state in STATES]
        for volume in volumes:
            volume.requests = [operations.Request(
                operations.UPDATE_HOST, row, volume, self) for row in 'VP']
        with self.brought_there('update_host', volumes):
            there = ['%s@dmclone#dmclone' % node.name
                     for node in (self.home, self.peer)]
            for one, other in (there, reversed(there)):
                hosts = self.hosts()
                self.lab.control.manage(
                    'cinder-manage', 'volume', 'update_host',
                    '--currenthost', one, '--newhost', other)
                self.assertEqual({other}, set(self.hosts().values()))
                wait.until(lambda hosts=hosts: self.hosts() == hosts,
                           'all hosts to be put back', TO_PUT_BACK)
            for volume in volumes:
                for request in volume.requests:
                    request.answered, request.outcome = True, 'done'

    def hosts(self):
        """Return {row id: host}."""
        return dict(self.lab.sql(
            "SELECT id, host FROM volumes WHERE deleted = 0"))

    @contextlib.contextmanager
    def brought_there(self, name, volumes):
        """Bring volumes to their states; check the volumes at the end."""
        originals = self.bring_there(volumes)
        try:
            with concurrent.futures.ThreadPoolExecutor(
                    len(volumes), initializer=self.lab.enter) as pool:
                try:
                    yield pool
                finally:
                    self.go_on()
            self.converge(volumes, originals)
        finally:
            self.write_down(name, volumes)
        self.assertEqual({}, {volume.name: volume.wrong for volume in volumes
                              if volume.wrong})
        self.assertEqual([], [
            (volume.name, request.name, request.outcome, request.reason)
            for volume in volumes for request in volume.requests
            if request.outcome not in ('done', 'refused')])
        self.at_once([functools.partial(
            self.user.delete_volume, volume.volume_id, TO_PREPARE)
            for volume in volumes if not volume.deleted], AT_ONCE)
        self.nothing_left(base.TO_PREPARE)

    def go_on(self):
        stops.go_on(base.FOLDER)
        # A request may have moved a volume back.
        for node in (self.home, self.peer):
            hold.resume_all(node)

    # Before

    def bring_there(self, volumes):
        """Bring volumes to their states; returns their checksums."""
        self.create(volumes)
        for volume in volumes:
            volume.seed = volume.volume_id
        originals = self.fill(volumes)
        self.at_once([functools.partial(self.attach_twice, volume)
                      for volume in volumes], AT_ONCE)
        moving = [volume for volume in volumes if volume.state != 'prepared']
        # A request ends when the peer has opened its gate, or at a timeout.
        self.at_once([functools.partial(self.let_go, volume.first)
                      for volume in moving], len(volumes))
        wait.until(lambda: all(map(self.is_there, moving)),
                   'all volumes', TO_PREPARE, log=lambda: '\n'.join(
                       '%s is not %s' % (volume.volume_id, volume.state)
                       for volume in moving if not self.is_there(volume)))
        self.write(self.peer, moving)
        self.write(self.home, set(volumes) - set(moving))
        wait.until(lambda: all(
            volume.state == 'gate closed' or
            stops.durable(base.FOLDER, volume.volume_id)
            for volume in volumes), 'what guests have written', 60)
        return originals

    def attach_twice(self, volume):
        """Prepare a move, and set the step at which it stops."""
        volume.first = self.user.attach(volume.volume_id, self.home,
                                        volume.instance)['id']
        self.user.attach(volume.volume_id, self.peer, volume.instance)
        volume.placeholder_id, = self.placeholders(volume.volume_id)
        if volume.state in STEPS:
            stops.stop_at(base.FOLDER, volume.volume_id, STEPS[volume.state],
                          self.peer.name)
        elif volume.state == 'hydrating':
            stops.hold_up(base.FOLDER, volume.volume_id)

    def let_go(self, attachment_id):
        """Delete an attachment; a timeout of the API is ignored."""
        try:
            self.user.detach(attachment_id)
        except user_module.ApiError as error:
            # The API does not wait any longer; the home continues.
            if error.status != 500:
                raise

    def is_there(self, volume):
        """Return whether a volume is in its state."""
        if volume.state in STEPS:
            return stops.stopped(base.FOLDER, volume.volume_id)
        return hold.is_held(self, volume.placeholder_id)

    def write(self, node, volumes):
        """Write a block as guests; it waits if the gate is closed."""
        names = dict(self.lab.sql("SELECT id, COALESCE(_name_id, id) FROM "
                                  "volumes WHERE deleted = 0"))
        node.run('\n'.join(cases.WRITE.format(
            id=volume.volume_id, path=Names(names[volume.volume_id]).path(),
            at=cases.GUEST_BLOCK, folder=stops.ON_NODE)
            for volume in volumes))

    # The requests

    def ask_for_all_of(self, volume):
        """Send the requests in order; the last one may remain pending."""
        for request in volume.requests:
            request.since = len(self.logs.lines)
            last = request is volume.requests[-1]
            try:
                request.asked = last
                self.ask(request)
                if last:
                    return
                wait.until(lambda asked=request: self.see(asked), request.name,
                           TO_ANSWER)
                request.operation.put_right(request)
                self.reset_right(volume)
            except Exception as error:
                request.outcome, request.reason = 'FAILED', repr(error)

    def ask(self, request):
        """Send a request; if it is refused, reset the row and repeat it."""
        if not request.operation.after_reset:
            self.ask_once(request)
        if not (request.answered or request.operation.once):
            request.action(**{'os-reset_status': operations.RESET})
            self.ask_once(request)
            # From now on a refusal is the outcome.
            request.reset = True

    def ask_once(self, request):
        try:
            request.operation.ask(request)
            request.answered = True
        except user_module.ApiError as error:
            request.refusal = '%s: %s' % (error.status, error.text[:300])
        except operations.Refused as error:
            request.refusal = str(error)

    def see(self, request):
        """Determine the outcome of a request, unless it is known.

        :returns: whether it is known
        """
        if request.outcome:
            return True
        if not request.answered:
            if request.refusal and (request.reset or request.operation.once):
                request.outcome, request.reason = 'refused', request.refusal
        elif request.operation.done(request):
            request.outcome = 'done'
        elif not self.is_busy(request):
            # A placeholder's request may log the volume's id once more, in
            # the name of the logical volume.
            earlier = logs.request_ids(*(
                each.reason for each in request.volume.requests
                if each is not request))
            request.reason = self.logs.said(
                *request.ids, since=request.since,
                but=[logs.BACKGROUND, *earlier])
            request.outcome = 'refused' if request.reason else None
        return bool(request.outcome)

    def is_busy(self, request):
        """Return whether the row is in a transient state."""
        found = request.columns('status', 'migration_status')
        return found and (found[0] in BUSY or found[1] in MIGRATES)

    def attachments(self, volume):
        """Return a volume's attachments, the home's first."""
        return sorted(self.user.attachments(volume.volume_id),
                      key=lambda each: each['id'] != volume.first)

    def reset_right(self, volume):
        """Reset a volume's state to the right one, as an operator would."""
        right = 'in-use' if self.attachments(volume) else 'available'
        if self.user.volume(volume.volume_id)['status'] != right:
            self.user.as_admin(
                'POST', '/volumes/%s/action' % volume.volume_id,
                {'os-reset_status': {'status': right}})

    # Afterwards

    def converge(self, volumes, originals):
        """Undo the effects of the requests, and check all data."""
        def converged():
            for volume in volumes:
                if volume.wrong:
                    volume.wrong = self.go_further(volume)
            return not any(volume.wrong for volume in volumes)
        self.logs.wait_for(TO_CONVERGE, converged)
        now = self.parts()
        for volume in volumes:
            if not (volume.wrong or volume.deleted):
                before, found = originals[volume.seed], now.get(
                    volume.volume_id)
                right = [before[0], self.written(volume.seed), before[2]]
                if found != right:
                    volume.wrong = 'it holds %s instead of %s' % (found,
                                                                  right)

    def go_further(self, volume):
        """Do the next step for a volume; returns what is still missing."""
        last = volume.requests[-1]
        try:
            if not self.see(last):
                return 'no outcome'
            if not volume.undone:
                if self.is_busy(last):
                    return 'it is busy'
                last.operation.put_right(last)
                volume.undone = True
            if not volume.deleted:
                self.reset_right(volume)
                for attachment in self.attachments(volume):
                    self.user.detach(attachment['id'])
            rows = self.states().get(volume.volume_id, [])
            if volume.deleted:
                return str(rows) if rows else None
            return None if len(rows) == 1 and not rows[0][3] else str(rows)
        except Exception as error:
            return repr(error)

    def write_down(self, name, volumes):
        """Save the outcomes for the table, and the reasons."""
        (OUTCOMES / (name + '.json')).write_text(json.dumps([{
            'operation': request.operation.name, 'row': request.row,
            'state': volume.state, 'outcome': request.outcome,
            'reset': request.reset, 'refusal': request.refusal,
            'reason': request.reason, 'wrong': volume.wrong,
            'volume': volume.seed, 'placeholder': volume.placeholder_id}
            for volume in volumes for request in volume.requests], indent=1))
