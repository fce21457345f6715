# SPDX-License-Identifier: Apache-2.0
"""What operators read, and change, of the pace of this node's copies."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
from typing import Any

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move.outgoing import Outgoing
from dmclone_driver.move.pace_settings import PaceSettings
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)


class PaceRequests:
    """Answers the requests of ``dmclone pace``."""

    def __init__(self, backend: Backend, settings: PaceSettings,
                 pacer: Pacer, outgoing: Outgoing) -> None:
        self._backend = backend
        self._settings = settings
        self._pacer = pacer
        self._outgoing = outgoing

    def pace(self, context: cinder_context.RequestContext,
             changes: collections.abc.Mapping[str, Any]) -> dict[str, Any]:
        """Change the pace, if there is anything to change, and return it.

        The next look of the watcher does what that means.

        :param changes: some of the values of :meth:`Limits.as_dict`, None for
            the configured one, and ``first``: ids of the volumes whose copies
            come first, in this order, instead of those until now
        :returns: plain values, see the page of ``dmclone``
        :raises: PaceRefused; then nothing is changed
        """
        if changes:
            self._change(context, dict(changes))
        return self._report()

    def _change(self, context: cinder_context.RequestContext,
                changes: dict[str, Any]) -> None:
        wanted = changes.pop('first', None)
        first = (self._settings.first if wanted is None else
                 tuple(self._copy_of(context, each).name_id
                       for each in dict.fromkeys(wanted)))
        try:
            self._settings.change(changes, first)
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise exception.PaceRefused(host=self._backend.host, reason=error)
        LOG.info('The limits of copies on %(host)s are %(limits)s, and '
                 '%(first)s come first.', {
                     'host': self._backend.host, 'first': list(map(
                         names_module.text, first)) or 'none',
                     'limits': self._settings.limits.as_dict()})

    def _copy_of(self, context: cinder_context.RequestContext,
                 volume_id: str) -> Names:
        """Return the names of the copy of a volume to this node.

        :raises: PaceRefused
        """
        row = lookups.get(context, volume_id)
        names = row and Names(row.name_id)
        if names in self._pacer.waiting() or names in self._pacer.copying():
            return names
        raise exception.PaceRefused(host=self._backend.host, reason=_(
            'volume %s is not being copied to this node, or its copy waits '
            'for more than its turn; see "dmclone show"') % volume_id)

    def _report(self) -> dict[str, Any]:
        settings = self._settings
        running, waiting = self._outgoing.counts()
        return {
            'backend': self._backend.host,
            'limits': settings.limits.as_dict(),
            'configured': settings.configured.as_dict(),
            'link': settings.link,
            'first': [_volume(name_id) for name_id in settings.first],
            'copying': [
                {'volume': _volume(names.name_id), 'allowed': rate}
                for names, rate in self._pacer.copying().items()],
            'waiting': [
                {'volume': _volume(names.name_id), 'seconds': seconds,
                 'refused': refused, 'room': self._pacer.lacks_room(names)}
                for names, (seconds, refused) in
                self._pacer.waiting().items()],
            'leaving': {'copying': running, 'waiting': waiting}}


def _volume(name_id: str) -> str:
    """Return the id of a volume; that of its logical volume if unknown."""
    return names_module.volume_of(name_id) or name_id
