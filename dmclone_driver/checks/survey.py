# SPDX-License-Identifier: Apache-2.0
"""All checks of dmclone-check, in the order of its lines."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import functools

from cinder.brick.local_dev import lvm as cinder_lvm
from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import utils
from cinder.volume import configuration as cinder_configuration
from oslo_config import cfg

from dmclone_driver.checks import backends
from dmclone_driver.checks import coordination
from dmclone_driver.checks.host import Host
from dmclone_driver.checks import host_names
from dmclone_driver.checks import initiator
from dmclone_driver.checks import kernel
from dmclone_driver.checks import lsm
from dmclone_driver.checks import lvm_filter
from dmclone_driver.checks import multipath
from dmclone_driver.checks import options
from dmclone_driver.checks import peers
from dmclone_driver.checks import privileges
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks.result import Result
from dmclone_driver.checks import storage
from dmclone_driver.checks import target
from dmclone_driver.checks import timeouts
from dmclone_driver.checks import udev
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.peers import Peer
from dmclone_driver.move.peers import Peers
from dmclone_driver.move.rpcapi import PeerClient

CONF = cfg.CONF
# cinder-volume registers it in its program, whose import would change the
# threads of this process.
CLUSTER = cfg.StrOpt('cluster')

_Results = collections.abc.Iterator[Result]
# Returns one result, or yields some.
_Check = collections.abc.Callable[[], 'Result | _Results']


def node_of(configuration: cinder_configuration.Configuration) -> str:
    """Return Cinder's name of this node, for a backend."""
    return configuration.safe_get('backend_host') or CONF.host


class Survey:
    """The checks of this node and of some of its backends."""

    def __init__(self, context: cinder_context.RequestContext, host: Host,
                 driver: type, version: str,
                 connect: collections.abc.Callable[[], PeerClient]) -> None:
        """Remember what the checks need.

        :param driver: the driver's class
        :param connect: function that makes the database and the message bus
            usable
        """
        self._context = context
        self._host = host
        self._driver = driver
        self._version = version
        self._connect = connect
        self._rooted = True
        CONF.register_opt(CLUSTER)

    def run(self, configurations: collections.abc.Sequence[
            cinder_configuration.Configuration]) -> _Results:
        """Yield the results.

        :param configurations: of one backend at least
        """
        yield from self._check_node(configurations[0])
        for configuration in configurations:
            yield from self._check_backend(configuration)

    def _check_node(self, first: cinder_configuration.Configuration
                    ) -> _Results:
        host = self._host
        root = privileges.check(host)
        self._rooted = root.outcome == Outcome.OK
        yield root
        yield from self._guard('kernel', functools.partial(
            kernel.check_version, first, host))
        yield from self._guard('device-mapper targets', functools.partial(
            kernel.check_targets, first, host, host.find_module), rooted=True)
        for name, check in ((udev.NAME, udev.check),
                            ('iscsid', initiator.check_service),
                            (multipath.NAME, multipath.check),
                            (lsm.NAME, lsm.check),
                            (coordination.NAME, coordination.check)):
            yield from self._guard(name, functools.partial(check, host))
        yield options.check_template()
        yield options.check_cluster(CONF.cluster)
        yield from self._guard("Nova's host", functools.partial(
            host_names.check_nova, node_of(first), host))

    def _check_backend(self, configuration: cinder_configuration.Configuration
                       ) -> _Results:
        section = configuration.config_group
        guard = functools.partial(self._guard, subject=section)
        found = backends.check_driver(section, self._driver)
        yield found
        if found.outcome != Outcome.OK:
            return
        yield from options.check(configuration)
        yield timeouts.check(configuration)
        yield backends.check_alone(configuration, self._driver)
        host = self._host
        yield from guard('kernel modules', functools.partial(
            kernel.check_modules, configuration, host), rooted=True)
        yield from guard(lvm_filter.NAME, functools.partial(
            lvm_filter.check, configuration, host), rooted=True)
        yield from guard('volume group', functools.partial(
            self._check_storage, configuration), rooted=True)
        yield from guard(target.NAME, functools.partial(
            target.check, configuration, host))
        yield from guard('CHAP algorithms', functools.partial(
            initiator.check_chap, configuration, host))
        yield from guard(peers.ANSWER, functools.partial(
            self._check_peers, configuration))

    def _check_storage(self, configuration: cinder_configuration.Configuration
                       ) -> _Results:
        name, section = configuration.volume_group, configuration.config_group

        def look() -> None:
            folder = lvm_filter.folder_of(configuration, self._host)
            # As Cinder's LVM driver sets it.
            cinder_lvm.LVM.LVM_CMD_PREFIX = ['env', 'LC_ALL=C'] + (
                ['LVM_SYSTEM_DIR=' + folder] if folder else [])
            if not cinder_lvm.LVM.get_all_volume_groups(
                    utils.get_root_helper(), name):
                raise cinder_exception.VolumeBackendAPIException(
                    data=_('Volume Group %s does not exist') % name)

        found, group = storage.check_group(configuration, look)
        yield found
        if group is None:
            for line in ('free space', storage.POOL, storage.DUMP,
                         'metadata'):
                yield result.not_applicable(
                    line, _('there is no volume group'), section)
            return
        yield storage.check_space(configuration, group)
        yield storage.check_pool(configuration, group, self._host)
        yield storage.check_dump(configuration, group, self._host)
        yield storage.check_metadata(configuration)

    def _check_peers(self, configuration: cinder_configuration.Configuration
                     ) -> _Results:
        mine = '%s@%s' % (node_of(configuration), configuration.config_group)
        others: list[Peer] = []
        try:
            client = self._connect()
            others = [peer for peer in Peers(mine).all(self._context)
                      if peer.backend_host != mine]
            failure = None
        except Exception as error:
            failure = result.unknown(
                peers.ANSWER, _('the database does not answer: %s')
                % exception.text_of(error).partition('\n')[0],
                _('correct [database] and transport_url'),
                configuration.config_group)
        yield from self._guard('host names', functools.partial(
            host_names.check_names,
            [node_of(configuration)] + [peer.node for peer in others],
            self._host))
        if failure is not None:
            yield failure
        elif not others:
            yield result.not_applicable(
                peers.ANSWER, _('no other node has this backend'),
                configuration.config_group)
        else:
            yield from peers.check(self._context, others, client, self._host,
                                   self._version)

    def _guard(self, name: str, check: _Check, subject: str = '',
               rooted: bool = False) -> _Results:
        """Yield the results of a check, UNKNOWN if it raises.

        :param rooted: whether it runs programs as root
        """
        if rooted and not self._rooted:
            yield result.unknown(name, _('it needs root'),
                                 _('correct what the check "root" says'),
                                 subject)
            return
        try:
            found = check()
            yield from [found] if isinstance(found, Result) else found
        except PermissionError as error:
            yield result.unknown(name, str(error),
                                 _('run this command as root'), subject)
        except Exception as error:
            yield result.unknown(
                name, _('the check failed: %s') % (
                    exception.text_of(error) or repr(error)),
                _('see whether the programs that it uses are installed'),
                subject)
