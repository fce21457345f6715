# SPDX-License-Identifier: Apache-2.0
"""The importing side of iSCSI, done by os-brick."""

import contextlib
import glob
import os
import socket
from typing import Any

from cinder import exception as cinder_exception
from cinder import utils
from cinder.volume import volume_utils
from os_brick.initiator import connector
from os_brick.privileged import rootwrap
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import netutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node import names
from dmclone_driver.privsep import block
from dmclone_driver.privsep import command
from dmclone_driver.privsep import iscsi_records

# Exit code of iscsiadm: ISCSI_ERR_NO_OBJS_FOUND in open-iscsi's iscsi_err.h.
NO_SESSION = 21

SESSIONS = '/sys/class/iscsi_session/*/targetname'

#: Instead of a password: the source is a device of this node, not exported.
LOCAL = 'local'

# Seconds within which a portal has to accept a connection.
PORTAL_TIMEOUT = 5

# How often iscsid repeats a first login that fails, at 15 seconds each
# (node.session.initial_login_retry_max, by default 8 in open-iscsi, and
# node.conn[0].timeo.login_timeout). Meanwhile os-brick blocks the logins of
# other volumes.
LOGIN_RETRIES = 1

# Seconds that a scan for the disk waits if the target is withdrawn after the
# login (node.session.timeo.replacement_timeout, by default 120). os-brick
# blocks other volumes here, too. For the disk that it has found,
# dmclone_source_timeout takes its place.
SCAN_TIMEOUT = 5

# Seconds that udev may take to name a new disk before os-brick looks for it.
NAMED_WITHIN = 1

LOG = logging.getLogger(__name__)


def _execute(*words: str, **options: Any) -> tuple[str, str]:
    """Run a command of os-brick, changed to what a source needs.

    os-brick changes open-iscsi's record of the target in any case
    (_connect_to_iscsi_portal in os_brick/initiator/connectors/iscsi.py). So
    two changes take no process of their own:

    * With the mode of scans, before the login, the number of attempts and
      the wait for a lost connection are limited. iscsid would try for minutes
      to log in to a withdrawn source, and a scan would wait for it.
    * After the login, the login at boot is not enabled. A boot would wait for
      a source that is down. The driver logs in by itself when it has started.

    After a scan for disks it waits for udev. os-brick looks for udev's link to
    a new disk at once, and then each second (_connect_single_volume there);
    udev takes some tenths of a second.
    """
    if words[-3:-1] == ('node.session.scan', '-v'):
        words = (*words, '-n', 'node.session.initial_login_retry_max', '-v',
                 '%d' % LOGIN_RETRIES, '-n',
                 'node.session.timeo.replacement_timeout', '-v',
                 '%d' % SCAN_TIMEOUT)
    elif words[-3:] == ('node.startup', '-v', 'automatic'):
        words = (*words[:-1], 'manual')
    result = rootwrap.execute(*words, **options)
    if words[0] == 'tee' and words[-1].endswith('/scan'):
        # If it takes longer, os-brick waits for it.
        with contextlib.suppress(processutils.ProcessExecutionError, OSError):
            command.settle(NAMED_WITHIN)
    return result


def properties(location: str, auth: str) -> dict[str, Any]:
    """Return os-brick's connection properties of a source.

    :param location: ``ip:port,tpgt iqn lun``
    :param auth: ``CHAP user password``
    """
    portal, iqn, lun = location.split()
    method, user, password = auth.split()
    return {'target_discovered': False,
            'target_portal': portal.partition(',')[0],
            'target_iqn': iqn, 'target_lun': int(lun),
            'auth_method': method, 'auth_username': user,
            'auth_password': password}


def iqn_of(location: str) -> str:
    """Return the iSCSI name of a source from its provider_location."""
    return location.split()[1]


def is_local(location: str) -> bool:
    """Whether a provider_location is the path of a device of this node."""
    return location.startswith('/dev/')


class Initiator:
    """iSCSI sessions to the sources of this node's destinations."""

    def __init__(self, scan_attempts: int, source_timeout: int) -> None:
        self._scan_attempts = scan_attempts
        self._source_timeout = source_timeout

    @property
    def _connector(self) -> connector.InitiatorConnector:
        return connector.InitiatorConnector.factory(
            'ISCSI', utils.get_root_helper(), execute=_execute,
            device_scan_attempts=self._scan_attempts)

    @staticmethod
    def name() -> str:
        """Return this node's iSCSI name."""
        return volume_utils.brick_get_connector('ISCSI').get_initiator()

    def connect(self, location: str, auth: str) -> str:
        """Log in to a source and return the path of its disk.

        :raises: SourceUnreachable, VolumeDriverException if
            dmclone_source_timeout cannot be set for its session
        """
        if auth == LOCAL:
            return location
        wanted = properties(location, auth)
        self._check_portal(wanted['target_portal'])
        self._delete_empty_records(wanted['target_iqn'])
        device = self._connector.connect_volume(wanted)
        try:
            block.set_recovery_timeout(device['path'], self._source_timeout)
            block.wait_for_commands(device['path'])
        except OSError as error:
            raise cinder_exception.VolumeDriverException(message=_(
                'dmclone_source_timeout = %(seconds)d cannot be set for the '
                'iSCSI session to %(target)s: %(error)s') % {
                    'seconds': self._source_timeout,
                    'target': names.text_of_target(wanted['target_iqn']),
                    'error': error})
        try:
            block.deepen_queue(device['path'])
        except OSError as error:
            LOG.warning('Deepening the queue of the disk imported from '
                        '%(target)s failed: %(error)s. If its source goes '
                        'down, an instance with many requests may hang.',
                        {'target': names.text_of_target(wanted['target_iqn']),
                         'error': error})
        return device['path']

    @staticmethod
    def _check_portal(portal: str) -> None:
        """Refuse to log in to a portal that does not answer.

        iscsid would try for two minutes. os-brick does one thing at a time
        on a node (the lock "connect_volume" of
        os_brick/initiator/connectors/iscsi.py), so volumes of other nodes
        would wait.

        :raises: SourceUnreachable
        """
        try:
            socket.create_connection(netutils.parse_host_port(portal),
                                     PORTAL_TIMEOUT).close()
        except OSError as error:
            raise exception.SourceUnreachable(portal=portal, error=error)

    @staticmethod
    def _delete_empty_records(iqn: str) -> None:
        try:
            deleted = iscsi_records.delete_empty(iqn)
        except OSError as error:
            LOG.warning("Deleting open-iscsi's empty records of %(target)s "
                        'failed: %(error)s',
                        {'target': names.text_of_target(iqn), 'error': error})
            return
        if deleted:
            LOG.info("Deleted open-iscsi's empty records of %(target)s, left "
                     'by a power cut: %(paths)s',
                     {'target': names.text_of_target(iqn),
                      'paths': ', '.join(deleted)})

    def cut(self, location: str | None) -> None:
        """End a session at once; requests that wait for it get errors.

        :param location: provider_location; without one there is no session
        """
        if location and not is_local(location):
            self.log_out(iqn_of(location))

    @staticmethod
    def targets() -> list[str]:
        """Return the iSCSI names of all targets with a session.

        They are read from the kernel, so iscsid does not have to answer.
        """
        found = []
        for path in glob.glob(SESSIONS):
            try:
                with open(path) as stream:
                    found.append(stream.read().strip())
            except OSError:
                # The session has just ended.
                continue
        return found

    @staticmethod
    def is_lost(disk: str) -> bool:
        """Return whether an imported disk's session waits for its target.

        :param disk: its name in the kernel
        """
        try:
            with open(block.session_of(disk) + '/state') as stream:
                return stream.read().strip() != 'LOGGED_IN'
        except OSError:
            # The session was ended: requests get errors.
            return False

    @staticmethod
    def in_use(iqn: str) -> bool:
        """Return whether a device of this node lies on a target's disk."""
        return any(
            os.listdir('/sys/class/block/%s/holders' % os.path.basename(
                os.path.realpath(path)))
            for path in glob.glob('/dev/disk/by-path/*-iscsi-%s-lun-*'
                                  % glob.escape(iqn)))

    @staticmethod
    def log_out(iqn: str) -> None:
        """End the sessions to a target; succeed if there is none."""
        try:
            command.iscsiadm(['-m', 'node', '-T', iqn, '--logout'])
        except (processutils.ProcessExecutionError, OSError) as error:
            if getattr(error, 'exit_code', None) != NO_SESSION:
                LOG.warning('Logging out of %(target)s failed: %(error)s',
                            {'target': names.text_of_target(iqn),
                             'error': error})

    def disconnect(self, location: str | None, auth: str | None) -> None:
        """Log out of a source; succeed if there is no session.

        The session is cut: a read-only disk has nothing to flush, and
        os-brick would wait for a source that is down.

        :raises: VolumeDriverException if the session still exists: a later
            move of the same volume would mistake it for its own
        """
        if not (location and auth) or is_local(location):
            return
        self.cut(location)
        self._connector.disconnect_volume(
            properties(location, auth), None, force=True, ignore_errors=True)
        iqn = iqn_of(location)
        self._delete_empty_records(iqn)
        if iqn in self.targets():
            raise cinder_exception.VolumeDriverException(message=_(
                'Ending the iSCSI session to %s failed; see the log of '
                'cinder-volume for the reason.') % names.text_of_target(iqn))
