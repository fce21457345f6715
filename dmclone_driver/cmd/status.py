# SPDX-License-Identifier: Apache-2.0
"""The verbs status and watch: all nodes and all moves, once or repeatedly."""

import argparse
import collections
import collections.abc
import dataclasses
import time
from typing import Any

from cinder import context as cinder_context
from cliff import columns

from dmclone_driver.cmd import display
from dmclone_driver.cmd import reading
from dmclone_driver.i18n import _
from dmclone_driver.move import gathering
from dmclone_driver.move.report import Move

# Clears the screen of a terminal, and goes to its first line.
_CLEAR = '\033[H\033[2J'


class Number(columns.FormattableColumn[Any]):
    """A list in a document, and its length for people."""

    def human_readable(self) -> str:
        """Return the length; nothing if there is no report."""
        return '' if self._value is None else str(len(self._value))


class Space(columns.FormattableColumn[Any]):
    """Bytes in a document, and a number with a unit for people."""

    def human_readable(self) -> str:
        """Return the number with its unit; nothing if it is unknown."""
        return '' if self._value is None else display.size(self._value)


class Jobs(columns.FormattableColumn[Any]):
    """The jobs of a node in a document, and their number for people."""

    def human_readable(self) -> str:
        """Return the number; nothing if there is no report."""
        return '' if self._value is None else str(
            sum(map(len, self._value.values())))


COLUMNS = ('Node', 'State', 'Volumes', 'Arriving', 'Sources', 'Left behind',
           'Jobs', 'Free', 'Total', 'Metadata', 'Version', 'Remote', 'Reason')
#: Those that people get, for whom the reasons are below the table.
_SHORT = COLUMNS[:8]


def row_of(found: gathering.Node,
           arriving: collections.abc.Iterable[Move]) -> tuple[Any, ...]:
    """Return the row of a node.

    :param arriving: the moves to it
    """
    report = found.report
    moves = Number([dataclasses.asdict(each) for each in arriving])
    begin = (found.backend, state_of(found), found.volumes, moves)
    if report is None:
        return (*begin, Number(None), Number(None), Jobs(None), Space(None),
                Space(None), None, None, Number(None), found.reason)
    return (*begin, Number([dataclasses.asdict(each)
                            for each in report.sources]),
            Number([dataclasses.asdict(each) for each in report.left_behind]),
            Jobs(report.jobs), Space(report.free), Space(report.total),
            report.metadata, report.version, Number(
                [dataclasses.asdict(each) for each in report.remotes]),
            problem(found))


def state_of(found: gathering.Node) -> str:
    """Return in a word whether a node works."""
    if found.report:
        return 'ok'
    return 'silent' if found.up else 'down'


def problem(found: gathering.Node) -> str:
    """Return what is wrong with a node that has answered, or nothing."""
    return '' if found.report is None or found.report.database else _(
        'it cannot read the database')


class Status(reading.Table):
    """Show all nodes and all moves, and what each waits for.

    Each node is asked once, and all at the same time. Nothing is changed, and
    no lock is taken.
    """

    short = _SHORT
    dispensable = ('Left behind', 'Jobs', 'Volumes', 'Sources')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the verb's options."""
        return self.add_backends(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...],
                               collections.abc.Iterable[tuple[Any, ...]]]:
        """Return the rows of the nodes, and remember the moves.

        :raises: Refused
        """
        context, client, names = self.open(parsed_args)
        return self.look(context, client, names, parsed_args)

    def look(self, context: cinder_context.RequestContext, client: Any,
             names: collections.abc.Collection[str],
             parsed_args: argparse.Namespace
             ) -> tuple[tuple[str, ...],
                        collections.abc.Iterable[tuple[Any, ...]]]:
        """Ask all nodes once."""
        self.cloud = gathering.gather(context, client, names,
                                      parsed_args.limit)
        self.code = int(
            any(node.report is None or problem(node)
                for node in self.cloud.nodes) or
            any(map(display.is_trouble, self.cloud.moves)))
        arriving = collections.defaultdict(list)
        for move in self.cloud.moves:
            arriving[move.destination].append(move)
        return COLUMNS, [row_of(each, arriving[each.backend])
                         for each in self.cloud.nodes]

    def below(self, width: int | None) -> collections.abc.Iterator[str]:
        """Yield what is below the table of nodes.

        :param width: of the terminal, None for a pipe
        """
        reasons = [(node.backend, node.reason or problem(node))
                   for node in self.cloud.nodes]
        lines = [display.wrapped('%s: %s' % (backend, why), width)
                 for backend, why in reasons if why]
        if lines:
            yield '\n'.join(lines)
        for move in self.cloud.moves:
            yield display.paragraph(move, width)
        for node in self.cloud.nodes:
            for each in node.report.remotes if node.report else ():
                yield display.wrapped('%s: %s' % (
                    each.volume, display.remote(each, node.backend)), width)


class Watch(Status):
    """Show the same as status, again and again.

    It ends with Ctrl-C, or with --until-complete.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the verb's options."""
        parser = super().get_parser(prog_name)
        parser.add_argument('--interval', type=reading.seconds, default=5,
                            metavar='SECONDS',
                            help=_('Pause between two looks. Default: 5.'))
        parser.add_argument('--until-complete', action='store_true',
                            help=_('End when every node has answered, and '
                                   'no move is under way.'))
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Look until it is enough; return the exit code of the last look."""
        plugin = self._formatter_plugins[parsed_args.formatter]
        self.formatter = plugin.obj
        opened = self.open(parsed_args)
        while True:
            try:
                shown = self.look(*opened, parsed_args)
                if parsed_args.formatter == 'table':
                    self._begin()
                self.produce_output(parsed_args, *shown)
                self.app.stdout.flush()
                if parsed_args.until_complete and self._is_complete():
                    return self.code
                time.sleep(parsed_args.interval)
            except KeyboardInterrupt:
                return self.code

    def _begin(self) -> None:
        """Clear a terminal; separate the looks in a pipe by their times."""
        self.app.stdout.write(
            _CLEAR if display.width_of(self.app.stdout) else
            time.strftime('%Y-%m-%d %H:%M:%S\n'))

    def _is_complete(self) -> bool:
        return not self.cloud.moves and all(
            node.report for node in self.cloud.nodes)
