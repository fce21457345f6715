# SPDX-License-Identifier: Apache-2.0
"""How moves are shown: in words, with numbers that fit, and with bars."""

import shutil
import textwrap
from typing import TextIO

from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.move.report import Move
from dmclone_driver.move.report import Remote
from dmclone_driver.move.report import Role
from dmclone_driver.move.report import Wait

#: What each wait means, and what to do. The fields are those of a move.
WAITS = {
    Wait.PREPARATION: _('its destination is being built on %(destination)s'),
    Wait.GATE: _('its gate is closed until its instance writes on '
                 '%(destination)s, or %(source)s hands it over'),
    Wait.SEAL: _('its gate opens when %(source)s refuses writes, or after '
                 'some seconds'),
    Wait.RECOVERY: _('%(destination)s builds its clone again after a start; '
                     'if that takes longer than a minute, see the log of '
                     'cinder-volume there'),
    Wait.CONNECTION: _('%(destination)s has no session to its source: check '
                       'that %(source)s and cinder-volume there run'),
    Wait.SESSION: _('the session to its source is lost, and requests for '
                    'data that is not copied yet wait: check %(source)s, its '
                    'iSCSI target and the network'),
    Wait.TURN: _('it waits for its turn to be copied, or keeps to a limit; '
                 'its guest need not wait: see "dmclone pace '
                 '%(destination)s"'),
    Wait.ROOM: _('of the thin pool on %(destination)s only the reserve for '
                 'the writes of guests is left, and the copy goes on when '
                 'there is room: extend the pool, or move or delete volumes '
                 'there'),
    Wait.START: _('the copy begins when cinder-volume on %(source)s answers'),
    Wait.PROGRESS: _('nothing was copied for a minute: its guest keeps the '
                     'disk busy, or the source cannot be read; see the log '
                     'of cinder-volume on %(destination)s'),
    Wait.SOURCE: _('its source is lost for good: data that was not copied '
                   'cannot be read; restore the volume from a backup, or '
                   'copy what can be read'),
    Wait.METADATA: _('its metadata cannot be written: see the log of '
                     'cinder-volume on %(destination)s, and "Troubleshooting" '
                     'in the documentation'),
    Wait.ROW: _('the database does not know it: run "dmclone reconcile" on '
                '%(destination)s'),
    Wait.REMOVAL: _('it was aborted, and %(destination)s removes the '
                    'destination'),
    Wait.REPORT: _('%(destination)s has not reported it: only the database '
                   'is known'),
}

#: What does not end by itself, or not for long.
TROUBLE = frozenset((Wait.CONNECTION, Wait.SESSION, Wait.ROOM,
                     Wait.PROGRESS, Wait.SOURCE, Wait.METADATA, Wait.ROW,
                     Wait.REPORT))

# The longest bar, in characters, and the shortest that says something.
_LONGEST, _SHORTEST = 40, 8


def size(number: float) -> str:
    """Return a number of bytes with a unit, such as ``1.5 GiB``."""
    for unit, name in ((units.Ti, 'TiB'), (units.Gi, 'GiB'),
                       (units.Mi, 'MiB')):
        if number >= unit:
            return '%.1f %s' % (number / unit, name)
    return '%d KiB' % (number // units.Ki)


def duration(seconds: float) -> str:
    """Return a time such as ``2 h 5 min``, in two units at most."""
    seconds = int(seconds)
    if seconds < 60:
        return '%d s' % seconds
    minutes = seconds // 60
    if minutes < 60:
        return '%d min' % minutes
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return '%d h %d min' % (hours, minutes)
    return '%d d %d h' % divmod(hours, 24)


def time_left(move: Move) -> float | None:
    """Return the seconds until a move is complete at its present rate."""
    if not move.rate or move.copied is None or move.size is None:
        return None
    return (move.size - move.copied) / move.rate


def width_of(stream: TextIO) -> int | None:
    """Return the width of a terminal, None for a pipe or a file."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def bar(done: float, width: int) -> str:
    """Return a bar such as ``[####------]``, empty if it would not fit.

    :param done: the fraction, from 0 to 1
    :param width: characters that there is room for
    """
    inner = min(width - 2, _LONGEST)
    if inner < _SHORTEST:
        return ''
    full = int(done * inner)
    return '[%s%s] ' % ('#' * full, '-' * (inner - full))


def progress(move: Move, width: int | None) -> str:
    """Return how far a move is, with a bar on a terminal; or nothing.

    :param width: of the terminal, None for a pipe
    """
    if not move.size or move.copied is None:
        return ''
    # 100 % is said of what is complete only.
    text = '%d%%' % (100 * move.copied // move.size)
    text += ', ' + _('%(done)s of %(all)s') % {
        'done': size(move.copied), 'all': size(move.size)}
    if move.rate is not None:
        text += ', %s/s' % size(move.rate)
    left = time_left(move)
    if left is not None:
        text += ', ' + _('%s left') % duration(left)
    if width is None:
        return text
    return bar(move.copied / move.size, width - len(text) - 1) + text


def reason(move: Move) -> str:
    """Return what a move waits for, and what to do; or nothing."""
    if not move.waits:
        return ''
    # That of a newer version may be unknown.
    text = WAITS.get(move.waits, move.waits)  # type: ignore[call-overload]
    # With lazy translation the texts above are Messages, which cannot be
    # appended to others (oslo_i18n/_message.py).
    return str(text) % {
        'source': node(move.source) or _('the node of the source'),
        'destination': node(move.destination) or _('its node')}


def node(backend: str) -> str:
    """Return the name of the node of a backend."""
    return backend.partition('@')[0]


def paragraph(move: Move, width: int | None) -> str:
    """Return the lines about a move.

    :param width: of the terminal, None for a pipe
    """
    lines = ['%s  %s > %s  %s' % (
        move.volume or _('logical volume %s') % move.placeholder,
        node(move.source) or '?', node(move.destination) or '?', move.state)]
    lines += ['  ' + text for text in (
        progress(move, width and width - 2), reason(move)) if text]
    return '\n'.join(wrapped(line, width) for line in lines)


def remote(found: Remote, home: str) -> str:
    """Return what to know, and to do, about a volume that is used remotely.

    :param home: its home, ``node@backend``
    """
    fields = {'there': found.node, 'home': node(home)}
    text = _('it is connected remotely on %(there)s, which had no room for '
             'it') % fields
    if not found.room:
        return text
    return text + '. ' + _(
        'There is room now: live-migrate its instance to %(home)s and from '
        'there to %(there)s, or detach the volume and attach it again') % (
            fields)


def wrapped(line: str, width: int | None) -> str:
    """Return a line in the lines of a terminal; a pipe gets it as it is."""
    if width is None:
        return line
    indent = ' ' * (len(line) - len(line.lstrip()))
    return textwrap.fill(line.strip(), max(width, 20), initial_indent=indent,
                         subsequent_indent=indent, break_on_hyphens=False)


def is_trouble(move: Move) -> bool:
    """Whether a move needs an operator, or a node that is away."""
    return move.waits in TROUBLE and (
        # Of the home's side its node knows little more.
        move.role == Role.DESTINATION)
