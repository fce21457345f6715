# SPDX-License-Identifier: Apache-2.0
"""What has to be so before a node is drained, so that nothing comes to it."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses

from cinder import context as cinder_context
from cinder import objects

from dmclone_driver.drain.compute import Compute
from dmclone_driver.drain.compute import ComputeError
from dmclone_driver.drain.obstacles import Obstacle
from dmclone_driver.i18n import _

#: The reason that both services show.
REASON = 'dmclone drain'


@dataclasses.dataclass(frozen=True)
class Ready:
    """Whether a drain may begin: if there are no obstacles.

    :ivar unknown: what could not be found out, and does not prevent it
    """

    obstacles: tuple[Obstacle, ...] = ()
    unknown: tuple[Obstacle, ...] = ()


class Guard:
    """Keeps new volumes and instances away from a node."""

    def __init__(self, context: cinder_context.RequestContext, host: str,
                 compute: Compute | ComputeError) -> None:
        """Create the guard of a node.

        :param host: the node's backend, ``node@backend``
        :param compute: Nova, or why it can't be asked
        """
        self._context = context
        self._host = host
        self._compute = compute

    def check(self, answers: bool, compute_hosts: list[str]) -> Ready:
        """Look whether all is ready; change nothing.

        :param answers: whether the node's backend does
        :param compute_hosts: Nova's names of the node
        """
        found: list[Obstacle] = []
        unknown: list[Obstacle] = []
        if not answers:
            found.append(Obstacle(
                _('cinder-volume of %s does not answer, so nothing there '
                  'can be moved') % self._host,
                _('start it; if the node is lost for good, use '
                  'dmclone-forget-node')))
        if not self._service().disabled:
            found.append(Obstacle(
                _('Cinder creates new volumes on %s') % self._host,
                _('use --disable, or run "openstack volume service set '
                  '--disable --disable-reason drained %s cinder-volume"')
                % self._host))
        for host in compute_hosts:
            obstacle, known = self._check_compute(host)
            if obstacle is not None:
                (found if known else unknown).append(obstacle)
        return Ready(tuple(found), tuple(unknown))

    def _check_compute(self, host: str) -> tuple[Obstacle | None, bool]:
        """Return an obstacle, if any, and whether Nova could be asked."""
        try:
            if isinstance(self._compute, ComputeError):
                raise self._compute
            if not self._compute.gets_instances(host):
                return None, True
        except ComputeError as error:
            return Obstacle(_('whether Nova puts new instances on %(host)s: '
                              '%(error)s') % {'host': host, 'error': error},
                            _('disable its nova-compute')), False
        return Obstacle(
            _('Nova puts new instances on %s') % host, _(
                'use --disable, or run "openstack compute service set '
                '--disable %s nova-compute"') % host), True

    def disable(self, compute_hosts: list[str]) -> None:
        """Keep new volumes and instances away, as the API's requests do.

        :param compute_hosts: Nova's names of the node
        :raises: ComputeError
        """
        service = self._service()
        if not service.disabled:
            service.disabled, service.disabled_reason = True, REASON
            service.save()
        if isinstance(self._compute, Compute):
            for host in compute_hosts:
                self._compute.disable(host, REASON)

    def enable(self, compute_hosts: list[str]) -> None:
        """Let the node have new volumes and instances again.

        Cinder's API did the same for its service until Cinder 28. That of 29
        answers so and changes nothing (``enable`` in
        cinder/api/v3/services.py).

        :param compute_hosts: Nova's names of the node
        :raises: ComputeError
        """
        service = self._service()
        service.disabled, service.disabled_reason = False, None
        service.save()
        if isinstance(self._compute, ComputeError):
            raise self._compute
        for host in compute_hosts:
            self._compute.enable(host)

    def _service(self) -> objects.Service:
        return objects.Service.get_by_args(
            self._context.elevated(), self._host, 'cinder-volume')
