# SPDX-License-Identifier: Apache-2.0
"""The verb show: one volume, on all nodes, in sentences."""

import argparse
import collections.abc
import dataclasses
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from cliff import show

from dmclone_driver.cmd import display
from dmclone_driver.cmd import reading
from dmclone_driver.i18n import _
from dmclone_driver.move import gathering
from dmclone_driver.move import plan
from dmclone_driver.move.report import LeftBehind
from dmclone_driver.move.report import Move
from dmclone_driver.move.report import NEEDED
from dmclone_driver.move.report import Remote
from dmclone_driver.move.report import Report
from dmclone_driver.move.report import Source
from dmclone_driver.move import report_rows
from dmclone_driver.move.report_rows import Row
from dmclone_driver.move import rpcapi
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node.names import Names


@dataclasses.dataclass(frozen=True)
class Volume:
    """All that is known of a volume.

    :ivar attachments: (host, id of the instance or empty, status)
    :ivar snapshots: (id, status, backend)
    :ivar sources: (backend that keeps it, source)
    :ivar left_behind: (backend, logical volume)
    :ivar jobs: (backend, kind of job)
    :ivar silent: (backend, why it has not answered)
    :ivar remotes: of its home, less than two if it has answered
    """

    row: Row
    attachments: tuple[tuple[str, str, str], ...]
    snapshots: tuple[tuple[str, str, str], ...]
    moves: tuple[Move, ...]
    sources: tuple[tuple[str, Source], ...]
    left_behind: tuple[tuple[str, LeftBehind], ...]
    jobs: tuple[tuple[str, str], ...]
    silent: tuple[tuple[str, str], ...]
    remotes: tuple[Remote, ...] = ()


def look(context: cinder_context.RequestContext, client: rpcapi.PeerClient,
         volume_id: str, limit: float) -> Volume:
    """Find out all about a volume; ask only nodes that have to do with it.

    :param limit: seconds that all answers together may take
    :raises: Refused
    """
    rows = report_rows.of_volume(context, volume_id)
    row = rows.pop(volume_id, None)
    if row is None:
        raise plan.Refused(_('There is no volume %s.') % volume_id)
    if row.record:
        raise plan.Refused(_(
            '%(row)s is no volume, but stands for one side of a move of '
            'volume %(volume)s: show that.') % {
                'row': row.id, 'volume': row.record.volume})
    snapshots = snapshot_rows.backends_of_volume(context, volume_id,
                                                 row.backend)
    hosts = {row.backend, *(each.backend for each in rows.values()),
             *(there for _id, _status, there in snapshots)}
    answers = gathering.ask(context, client, sorted(filter(None, hosts)),
                            limit)
    reports = [each for each in answers.values() if isinstance(each, Report)]
    known = {move.placeholder for each in reports for move in each.moves}
    moves = gathering.merge(reports, gathering.from_rows(
        (each for each in rows.values() if each.id not in known),
        {row.id: row}))
    ids = {volume_id, row.name_id, *rows}
    return Volume(
        row=row, attachments=tuple(_attachments(context, volume_id)),
        snapshots=tuple(snapshots),
        moves=tuple(each for each in moves if each.volume == volume_id),
        sources=tuple((each.backend, source) for each in reports
                      for source in each.sources
                      if source.volume == volume_id),
        left_behind=tuple((each.backend, lv) for each in reports
                          for lv in each.left_behind
                          if lv.volume == volume_id),
        jobs=tuple((each.backend, kind) for each in reports
                   for kind, objects_of in sorted(each.jobs.items())
                   if any(name in text for text in objects_of
                          for name in ids)),
        silent=tuple((host, answer) for host, answer in answers.items()
                     if isinstance(answer, str)),
        remotes=tuple(each for report in reports
                      if report.backend == row.backend
                      for each in report.remotes
                      if each.volume == volume_id))


def _attachments(context: cinder_context.RequestContext, volume_id: str
                 ) -> collections.abc.Iterator[tuple[str, str, str]]:
    for each in objects.VolumeAttachmentList.get_all_by_volume_id(
            context.elevated(), volume_id):
        host = each.attached_host or (each.connector or {}).get('host')
        yield host or '', each.instance_uuid or '', each.attach_status


def sentences(found: Volume) -> collections.abc.Iterator[str]:
    """Yield what an operator has to know, in words."""
    row = found.row
    yield _('Volume %(volume)s of %(size)s is %(status)s.') % {
        'volume': row.id, 'size': display.size(row.size),
        'status': row.status}
    yield _('Its home is %(home)s, in logical volume %(lv)s.') % {
        'home': row.backend or _('nowhere'), 'lv': Names(row.name_id).volume}
    for host, instance, status in found.attachments:
        yield _('It is %(status)s on %(host)s, for %(user)s.') % {
            'status': status, 'host': host or _('an unknown host'),
            'user': _('instance %s') % instance if instance else
            _('no instance')}
    for remote in found.remotes:
        text = display.remote(remote, row.backend)
        yield text[0].upper() + text[1:] + '.'
    for move in found.moves:
        yield from _about_move(move)
    if not found.moves and not found.silent:
        yield _('No move is under way, and its data is complete at its home.')
    for host, source in found.sources:
        yield _source_sentence(host, source)
    for snapshot_id, status, host in found.snapshots:
        yield _('Its snapshot %(id)s, which is %(status)s, is on '
                '%(host)s.') % {'id': snapshot_id, 'status': status,
                                'host': host}
    for host, left in found.left_behind:
        yield _('It has left behind on %(host)s: %(what)s, %(size)s in '
                '%(lv)s.') % {
                    'host': host, 'what': left.what,
                    'size': display.size(left.size),
                    'lv': left.logical_volume}
    for host, kind in found.jobs:
        yield _('cinder-volume on %(host)s is still trying: %(kind)s.') % {
            'host': host, 'kind': kind}
    for host, why in found.silent:
        yield _('%(host)s has not reported: %(why)s. What is said about it '
                'is from the database.') % {'host': host, 'why': why}


def _about_move(move: Move) -> collections.abc.Iterator[str]:
    yield _('Its move from %(source)s to %(destination)s is %(state)s.') % {
        'source': move.source or _('an unknown node'),
        'destination': move.destination or _('an unknown node'),
        'state': move.state}
    done = display.progress(move, None)
    if done:
        yield _('Copied: %s.') % done
    why = display.reason(move)
    if why:
        yield why[0].upper() + why[1:] + '.'


def _source_sentence(host: str, source: Source) -> str:
    if source.state == NEEDED:
        form = _('%(host)s keeps logical volume %(lv)s of it, which clones '
                 'still read.')
    elif source.state == 'released':
        form = _('%(host)s deletes its source, logical volume %(lv)s, which '
                 'is no longer needed.')
    else:
        form = _('%(host)s keeps its source, logical volume %(lv)s, until '
                 'the copy is complete: do not switch that node off.')
    return form % {'host': host, 'lv': Names(source.name_id).volume}


class Show(reading.Reading, show.ShowOne):
    """Show all about one volume, on all nodes, in sentences.

    Nothing is changed, and no lock is taken.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the verb's options."""
        parser = self.add_limit(super().get_parser(prog_name))
        parser.add_argument('volume', help=_('Id of the volume.'))
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the names and values of what is known.

        :raises: Refused
        """
        found = look(*self.connect(), parsed_args.volume, parsed_args.limit)
        self.code = int(bool(found.silent) or
                        any(map(display.is_trouble, found.moves)))
        plain = {
            'volume': found.row.id, 'status': found.row.status,
            'size': found.row.size, 'home': found.row.backend,
            'logical_volume': Names(found.row.name_id).volume,
            'attachments': [
                {'host': host, 'instance': instance, 'status': status}
                for host, instance, status in found.attachments],
            'moves': [dataclasses.asdict(each) for each in found.moves],
            'sources': [dict(dataclasses.asdict(each), backend=host)
                        for host, each in found.sources],
            'snapshots': [
                {'id': snapshot_id, 'status': status, 'backend': host}
                for snapshot_id, status, host in found.snapshots],
            'left_behind': [dict(dataclasses.asdict(each), backend=host)
                            for host, each in found.left_behind],
            'jobs': [{'backend': host, 'kind': kind}
                     for host, kind in found.jobs],
            'remotes': [dataclasses.asdict(each)
                        for each in found.remotes],
            'silent': dict(found.silent),
            'text': list(sentences(found))}
        return tuple(plain), tuple(plain.values())

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: collections.abc.Sequence[str],
                       data: collections.abc.Sequence[Any]) -> int:
        """Print the sentences, or a document for programs."""
        if parsed_args.formatter != 'table' or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        width = display.width_of(self.app.stdout)
        for sentence in data[-1]:
            self.app.stdout.write(display.wrapped(sentence, width) + '\n')
        return 0

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the verb; return its exit code."""
        super().run(parsed_args)
        return self.code
