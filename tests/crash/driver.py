# SPDX-License-Identifier: Apache-2.0
"""The driver, with volumes that stop at steps; see tests/crash/stops.py.

It differs from the driver only in that, in the size of volumes, in the number
of volumes that move at a time, and in threads for what one thread does.
"""

import functools
import socket
import time

from cinder import context as cinder_context

from dmclone_driver import driver
from dmclone_driver.move import deadline
from dmclone_driver.move import destination
from dmclone_driver.move import followers
from dmclone_driver.move import home
from dmclone_driver.move import lookups
from dmclone_driver.move import pacer
from dmclone_driver.move import released_sources
from dmclone_driver import steps
from tests.crash import stops


@functools.cache
def volume_of(row_id):
    """Return the id by which a test knows a volume.

    It is that of a placeholder's volume, and of the one that was copied.
    """
    context = cinder_context.get_admin_context(read_deleted='yes')
    row = (lookups.get(context, row_id) or
           # A source that is a snapshot has a name id of its own.
           lookups.owner_row(context, row_id))
    name = (row is not None and row.display_name) or ''
    if name.startswith(('dmclone ', stops.COPY_OF)):
        return volume_of(name.rpartition(' ')[2])
    return row_id


@functools.cache
def _name_of(volume_id):
    """Return the name of a volume, '' if there is none."""
    row = lookups.get(cinder_context.get_admin_context(), volume_id)
    return (row is not None and row.display_name) or ''


def _waits(names):
    """Return whether a clone has to wait for its turn."""
    volume_id = volume_of(names.name_id)
    return stops.waits(stops.ON_NODE, volume_id, _name_of(volume_id))


def _take_turn(self, names, source, take=pacer.Pacer.take_turn):
    return not _waits(names) and take(self, names, source)


def _is_queued(self, names, ask=pacer.Pacer.is_queued):
    return _waits(names) or ask(self, names)


def _settle_each(self, context, kind, settle=followers.Followers._settle_each):
    """Settle each follower in a thread of its own.

    One thread does that otherwise, in which one that stops would stop all.
    """
    for names in list(kind):
        self._backend.jobs.start(('settle', names), settle, self, context,
                                 [names])


def _look_again(self, context, hurried=None,
                look=released_sources.ReleasedSources.look_again):
    """Delete each source that had to wait in a thread of its own."""
    for names in self._changed(context) if hurried is None else list(hurried):
        self._backend.jobs.start(('release', names), look, self, context,
                                 [names])


def _reached(step, row_id, say=steps.reached):
    say(step, row_id)
    folder = stops.ON_NODE
    if not stops.anybody_told(folder):
        return
    volume_id = volume_of(row_id)
    if stops.stop_if_told(folder, volume_id, step, socket.gethostname()):
        while stops.stopped(folder, volume_id):
            time.sleep(1)


steps.reached = _reached
pacer.Pacer.take_turn = _take_turn
pacer.Pacer.is_queued = _is_queued
followers.Followers._settle_each = _settle_each
released_sources.ReleasedSources.look_again = _look_again
# A volume stops for longer than Cinder's API waits.
deadline.MARGIN = -120
# The volumes that have stopped would use up the turns of the others.
home.MOVES_AT_ONCE = destination.PREPARED_AT_ONCE = 1000


class StoppingDriver(driver.DMCloneVolumeDriver):
    """The driver whose volumes stop at the chosen steps."""

    def _sizestr(self, size_in_g):
        return '%dm' % (stops.MIB * int(size_in_g))
