# SPDX-License-Identifier: Apache-2.0
"""The verb that empties a node: its options, its signals and its output."""

import argparse
import collections.abc
import json
import threading
from typing import TextIO

from cinder import context as cinder_context
from cliff import command

from dmclone_driver.cmd import program
from dmclone_driver.drain import compute as compute_module
from dmclone_driver.drain import facts
from dmclone_driver.drain import guard as guard_module
from dmclone_driver.drain import mover
from dmclone_driver.drain import report
from dmclone_driver.drain import room
from dmclone_driver.drain import runner as runner_module
from dmclone_driver.drain import stop as stop_module
from dmclone_driver.drain import survey as survey_module
from dmclone_driver.i18n import _
from dmclone_driver.move import plan
from dmclone_driver.move import rpcapi

#: Volumes and instances that are under way at a time, unless the operator
#: says otherwise. A home moves two volumes at a time to each node.
PARALLEL = 2


class Drain(command.Command):
    """Move all volumes from a node to others, attached or not."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the verb's options."""
        parser = super().get_parser(prog_name)
        parser.add_argument('node', help=_(
            'Name of the node: the part before the @ in "openstack volume '
            'service list".'))
        what = parser.add_mutually_exclusive_group()
        what.add_argument('--plan', action='store_true', help=_(
            'Show what would be done, and what would stay and why. Nothing '
            'is changed.'))
        parser.add_argument('--to', metavar='NODE', help=_(
            'Move all to this node. Without it each volume that is not '
            'attached goes to a node of its availability zone with the '
            "most room, and Nova's scheduler chooses for instances."))
        what.add_argument('--disable', action='store_true', help=_(
            'First disable the cinder-volume and the nova-compute of the '
            'node, so that it gets no new volumes and instances.'))
        what.add_argument('--enable', action='store_true', help=_(
            'Do nothing but enable the cinder-volume and the nova-compute of '
            'the node again.'))
        parser.add_argument('--with-snapshots', action='store_true', help=_(
            'Have the snapshots follow their volumes. Each becomes a copy of '
            'the whole volume on the new node, and space for it is reserved '
            'there.'))
        parser.add_argument(
            '--parallel', metavar='NUMBER', type=_positive, default=PARALLEL,
            help=_('Number of volumes and instances that are moved at a '
                   'time. The default is %(default)s.'))
        parser.add_argument('--wait', action='store_true', help=_(
            'Wait until no volume reads from the node, and it has deleted '
            'what it had.'))
        parser.add_argument(
            '-f', '--format', choices=('text', 'json'), default='text',
            help=_('Form of the output. With json, lines about the progress '
                   'are on the error stream.'))
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Drain the node; return the exit code.

        :raises: Refused
        """
        code = program.run_without_backend(
            [], lambda context: self._drain(context, parsed_args),
            self.app.configuration)
        if isinstance(code, str):
            raise plan.Refused(code)
        return code

    def _drain(self, context: cinder_context.RequestContext,
               options: argparse.Namespace) -> int:
        as_json = options.format == 'json'
        lines = _Lines(self.app.stderr if as_json else self.app.stdout)
        with stop_module.by_signals() as stop:
            parts = _Parts(context, options, stop, lines.say)
            if options.enable:
                parts.enable()
                return 0
            if options.plan:
                result = parts.runner.plan()
                ready = parts.check(result.picture)
                told = [*report.of_guard(ready), *report.of_plan(result)]
                code = report.code_of_plan(result, ready)
            else:
                ready = parts.make_ready(options.disable)
                result = parts.runner.run(options.wait)
                told = list(report.of_end(result))
                code = (128 + stop.number if stop.number else
                        report.code_of_end(result))
        for line in told:
            lines.say(line)
        if as_json:
            json.dump(report.document(result, ready, options.plan),
                      self.app.stdout, indent=2)
            self.app.stdout.write('\n')
        return code


def _positive(text: str) -> int:
    """Return a number above zero.

    :raises: ValueError
    """
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


class _Lines:
    """Prints lines; threads may share it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, line: str) -> None:
        """Print a line at once."""
        with self._lock:
            self._stream.write(line + '\n')
            self._stream.flush()


class _Parts:
    """The objects that a drain consists of."""

    def __init__(self, context: cinder_context.RequestContext,
                 options: argparse.Namespace, stop: stop_module.Stop,
                 say: collections.abc.Callable[[str], None]) -> None:
        """:raises: Refused"""
        client = rpcapi.PeerClient()
        host = survey_module.backend_on(context, client, options.node)
        compute: compute_module.Compute | compute_module.ComputeError
        try:
            compute = compute_module.Compute(context)
        except compute_module.ComputeError as error:
            compute = error
        self._context, self._client = context, client
        self._to: str | None = options.to
        self._survey = survey_module.Survey(context, client, host, compute,
                                            options.with_snapshots)
        self._guard = guard_module.Guard(context, host, compute)
        self.runner = runner_module.Runner(
            context, client, self._survey, mover.Mover(
                context, client, self._survey, compute,
                room.Room(to=options.to), stop, say),
            stop, say, options.to, options.parallel)

    def check(self, picture: facts.Picture) -> guard_module.Ready:
        """Look whether the drain may begin."""
        return self._guard.check(
            survey_module.answers(self._context, self._client,
                                  self._survey.host),
            self._survey.hosts(picture))

    def enable(self) -> None:
        """Let the node have new volumes and instances again.

        :raises: Refused if its nova-compute can't be enabled
        """
        try:
            self._guard.enable(self._survey.hosts(self._survey.picture()))
        except compute_module.ComputeError as error:
            raise plan.Refused(_(
                'cinder-volume of %(host)s is enabled, nova-compute is not: '
                '%(error)s') % {'host': self._survey.host, 'error': error})

    def make_ready(self, disable: bool) -> guard_module.Ready:
        """Verify that the drain may begin.

        :param disable: whether to disable the node's services first
        :raises: Refused
        """
        picture = self._survey.picture()
        if self._to:
            # Such a node may not exist; nothing is to be changed then.
            self._survey.places(self._to)
        if disable:
            try:
                self._guard.disable(self._survey.hosts(picture))
            except compute_module.ComputeError as error:
                raise plan.Refused(str(error))
        ready = self.check(picture)
        if ready.obstacles:
            raise plan.Refused('\n'.join(report.of_guard(ready)))
        return ready
