# SPDX-License-Identifier: Apache-2.0
"""The verb pace: the limits of copies, and their order, while they run."""

import argparse
import collections.abc
from typing import Any

from cinder import context as cinder_context
from cinder.volume import volume_utils
from cliff import columns

from dmclone_driver.cmd import display
from dmclone_driver.cmd import reading
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import gathering
from dmclone_driver.move.pace import Bandwidth
from dmclone_driver.move.pace import Order
from dmclone_driver.move import plan
from dmclone_driver.move import report_rows
from dmclone_driver.move.rpcapi import PeerClient

COLUMNS = ('Node', 'Copies', 'Bandwidth in', 'Bandwidth out', 'Min rate',
           'Order', 'Copying', 'Waiting', 'Leaving', 'First', 'Link',
           'Configured', 'Reason')
#: Those that people get, for whom the rest is below the table.
_SHORT = COLUMNS[:9]
# The names of the limits in the answer of a node, in the order of COLUMNS.
_LIMITS = ('copies', 'bandwidth_in', 'bandwidth_out', 'min_rate', 'order')


class Limit(columns.FormattableColumn[Any]):
    """A limit in a document; for people with the configured one.

    Its value is (present, configured).
    """

    def human_readable(self) -> str:
        """Return the limit, and what the configuration says if it differs."""
        present, configured = self._value
        if present == configured:
            return '' if present is None else str(present)
        return _('%(present)s (configured: %(configured)s)') % {
            'present': present, 'configured': configured}

    def machine_readable(self) -> Any:
        """Return the present limit."""
        return self._value[0]


class Copies(columns.FormattableColumn[Any]):
    """Copies in a document, and their number for people."""

    def human_readable(self) -> str:
        """Return the number; nothing if the node has not answered."""
        return '' if self._value is None else str(len(self._value))


class Leaving(columns.FormattableColumn[Any]):
    """How many copies leave a node, and how many of them wait."""

    def human_readable(self) -> str:
        """Return both numbers; nothing if the node has not answered."""
        return '' if self._value is None else _(
            '%(copying)d, %(waiting)d wait') % self._value


def row_of(host: str, answer: dict[str, Any] | str) -> tuple[Any, ...]:
    """Return the row of a node, with its answer or why there is none."""
    if isinstance(answer, str):
        none = Limit((None, None))
        return (host, *[none] * len(_LIMITS), Copies(None), Copies(None),
                Leaving(None), Copies(None), None, None, answer)
    limits, configured = answer['limits'], answer['configured']
    # An older node has fewer limits.
    return (host, *(Limit((limits.get(name), configured.get(name)))
                    for name in _LIMITS),
            Copies(answer['copying']), Copies(answer['waiting']),
            Leaving(answer['leaving']), Copies(answer['first']),
            answer['link'], configured, '')


def sentences(host: str, answer: dict[str, Any] | str
              ) -> collections.abc.Iterator[str]:
    """Yield what people have to know of a node besides its row."""
    if isinstance(answer, str):
        yield '%s: %s' % (host, answer)
        return
    if not answer['limits']['copies']:
        yield _('%s: all copies are stopped.') % host
    for each in answer['copying']:
        yield _('%(volume)s is copied to %(host)s, %(rate)s.') % {
            'volume': each['volume'], 'host': host,
            'rate': _('without a limit') if each['allowed'] is None else
            _('at most at %s/s') % display.size(each['allowed'])}
    for number, each in enumerate(answer['waiting'], 1):
        yield _form(each) % {
            'number': number, 'volume': each['volume'], 'host': host,
            'time': display.duration(each['seconds'])}
    if answer['first']:
        yield _('%(host)s: an operator wants first: %(volumes)s.') % {
            'host': host, 'volumes': ', '.join(answer['first'])}


def _form(waiting: dict[str, Any]) -> str:
    """Return a sentence on what a copy waits for, without its values."""
    # The answer of an older node does not know room.
    if waiting.get('room'):
        return _('%(number)d. %(volume)s waits for %(time)s, at present for '
                 'room in the thin pool of %(host)s.')
    if waiting['refused']:
        return _('%(number)d. %(volume)s waits for %(time)s for a turn at '
                 'the node of its source.')
    return _('%(number)d. %(volume)s waits for %(time)s for its turn on '
             '%(host)s.')


class Pace(reading.Table):
    """Show the limits of copies and their order, or change them.

    A change applies to copies that run, too, and outlives a restart of the
    service.
    """

    short = _SHORT
    dispensable = ('Leaving', 'Order', 'Min rate', 'Bandwidth out',
                   'Bandwidth in')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the verb's options."""
        parser = self.add_backends(super().get_parser(prog_name))
        parser.add_argument('node', nargs='?', help=_(
            'Name of the node: the part before the @ in "openstack volume '
            'service list". Without it all nodes are shown.'))
        parser.add_argument(
            '--copies', type=_number, metavar='NUMBER', help=_(
                'How many copies to the node run at a time, and how many '
                'copies from it. With 0 all stop until there is another '
                'number.'))
        for way in ('in', 'out'):
            parser.add_argument(
                '--bandwidth-' + way, type=_bandwidth, metavar='BANDWIDTH',
                help={'in': _(
                    'What all copies from other nodes use together, at most: '
                    'a share of the link, such as 50%%, an amount per second, '
                    'such as 200MB or 1Gbit, or "none".'), 'out': _(
                    'The same of all copies that other nodes make from the '
                    'node.')}[way])
        parser.add_argument(
            '--min-rate', type=_number, metavar='NUMBER', help=_(
                'What a copy beside a busy guest gets at least, in MiB per '
                'second, as dmclone_hydration_min_rate in cinder.conf. While '
                'guests of other volumes use the node, all copies together '
                'get a quarter of that.'))
        parser.add_argument('--order', choices=list(map(str, Order)), help=_(
            'Which copy is next: the one with the fewest bytes left, or the '
            'one that has waited longest.'))
        parser.add_argument(
            '--first', metavar='VOLUME', action='append', help=_(
                'Id of a volume whose copy comes first, before all others. '
                'Can be repeated, and replaces those of an earlier call. The '
                'node is that of the volume, if none is named.'))
        parser.add_argument('--configured', action='store_true', help=_(
            'Use the limits in cinder.conf again, except those that are '
            'given, and want no volume first.'))
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...],
                               collections.abc.Iterable[tuple[Any, ...]]]:
        """Return the rows of the nodes, after the changes.

        :raises: Refused
        """
        context, client, names = self.open(parsed_args)
        changes = changes_of(parsed_args)
        hosts = self._hosts(context, names, parsed_args, bool(changes))
        self.answers: dict[str, dict[str, Any] | str] = (
            {hosts[0]: _change(context, client, hosts[0], changes,
                               parsed_args.limit)} if changes else
            gathering.ask_all(hosts, parsed_args.limit, lambda host, limit:
                              client.pace(context, host, timeout=limit)))
        self.code = int(any(isinstance(answer, str)
                            for answer in self.answers.values()))
        return COLUMNS, [row_of(host, answer)
                         for host, answer in self.answers.items()]

    @staticmethod
    def _hosts(context: cinder_context.RequestContext,
               names: collections.abc.Container[str],
               parsed_args: argparse.Namespace, one: bool) -> list[str]:
        """Return the backends that are meant.

        :param names: the parts after the ``@``
        :param one: whether it has to be one
        :raises: Refused
        """
        known = [each.host for each in gathering.services(context, names)]
        node = parsed_args.node
        if node:
            hosts = [host for host in known if node in (
                host, volume_utils.extract_host(host, 'host'))]
            missing = _('no backend of this driver is known on %s; '
                        '"openstack volume service list" shows the nodes') % (
                            node)
        elif one and parsed_args.first:
            rows = report_rows.with_ids(context, parsed_args.first)
            homes = {row.backend for row in rows.values()}
            hosts = [host for host in known if host in homes]
            missing = _('there is no volume %s') % ', '.join(
                parsed_args.first)
        else:
            hosts, missing = known, _('there is no such backend')
        if not hosts:
            raise plan.Refused(missing)
        if one and len(hosts) > 1:
            raise plan.Refused(_('Name the node whose pace is to be changed, '
                                 'one of %s.') % ', '.join(hosts))
        return hosts

    def below(self, width: int | None) -> collections.abc.Iterator[str]:
        """Yield the copies of all nodes, one a line."""
        lines = [display.wrapped(line, width)
                 for host, answer in self.answers.items()
                 for line in sentences(host, answer)]
        if lines:
            yield '\n'.join(lines)


def changes_of(parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return the changes that options ask for, as a node takes them."""
    changes: dict[str, Any] = {}
    if parsed_args.configured:
        changes = dict.fromkeys(_LIMITS, None)
        changes['first'] = []
    for name in (*_LIMITS, 'first'):
        value = getattr(parsed_args, name)
        if value is not None:
            changes[name] = value
    return changes


def _change(context: cinder_context.RequestContext, client: PeerClient,
            host: str, changes: dict[str, Any], limit: float
            ) -> dict[str, Any]:
    """Change the pace of a node; return its answer.

    :raises: Refused
    """
    try:
        return client.pace(context, host, changes, timeout=limit)
    except exception.PeerError as error:
        raise plan.Refused(error.msg)


def _number(text: str) -> int:
    """Return a number.

    :raises: ArgumentTypeError
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(_('%r is no number') % text)
    return int(text)


def _bandwidth(text: str) -> str:
    """Return a bandwidth as a node takes it.

    :raises: ArgumentTypeError
    """
    try:
        return str(Bandwidth.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))
