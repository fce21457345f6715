# SPDX-License-Identifier: Apache-2.0
"""The importing side of iSCSI, done by os-brick."""

import glob
import os
import socket

from cinder import exception as cinder_exception
from cinder import utils
from cinder.volume import volume_utils
from os_brick.initiator import connector
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import netutils

from dmclone_driver.i18n import _
from dmclone_driver.privsep import block
from dmclone_driver.privsep import command

# Of iscsiadm: ISCSI_ERR_NO_OBJS_FOUND in open-iscsi's iscsi_err.h.
NO_SESSION = 21

SESSIONS = '/sys/class/iscsi_session/*/targetname'

# Seconds that a portal has to accept a connection.
PORTAL_TIMEOUT = 5

# How often iscsid repeats a first login that fails, at 15 seconds each, while
# os-brick lets no other volume log in (node.session.initial_login_retry_max
# and node.conn[0].timeo.login_timeout of open-iscsi, which has 8).
LOGIN_RETRIES = 1

LOG = logging.getLogger(__name__)


def properties(location, auth):
    """Turn provider_location and provider_auth into what os-brick wants.

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


class Initiator:
    """Sessions to the sources of this node's destinations."""

    def __init__(self, scan_attempts, source_timeout):
        self._scan_attempts = scan_attempts
        self._source_timeout = source_timeout

    @property
    def _connector(self):
        return connector.InitiatorConnector.factory(
            'ISCSI', utils.get_root_helper(),
            device_scan_attempts=self._scan_attempts)

    @staticmethod
    def name():
        """Return this node's iSCSI name."""
        return volume_utils.brick_get_connector('ISCSI').get_initiator()

    def connect(self, location, auth):
        """Log in to a source; returns the path of its disk.

        :raises: VolumeDriverException if the source does not answer, or if
            it can't be said how long requests to the disk wait for it then
        """
        wanted = properties(location, auth)
        self._reach(wanted['target_portal'])
        self._give_up_early(wanted)
        device = self._connector.connect_volume(wanted)
        self._not_at_boot(wanted)
        try:
            block.set_recovery_timeout(device['path'], self._source_timeout)
        except OSError as error:
            raise cinder_exception.VolumeDriverException(message=_(
                'dmclone_source_timeout = %(seconds)d cannot be set for the '
                'iSCSI session of the imported disk %(disk)s: %(error)s') % {
                    'seconds': self._source_timeout, 'disk': device['path'],
                    'error': error})
        try:
            block.deepen_queue(device['path'])
        except OSError as error:
            LOG.warning('The queue of the imported disk %(disk)s cannot be '
                        'made deeper: %(error)s. If its source goes down, a '
                        'guest with many requests may stand still.',
                        {'disk': device['path'], 'error': error})
        return device['path']

    @staticmethod
    def _reach(portal):
        """Find out whether there is anything to log in to.

        os-brick does one thing at a time on a node (the lock
        "connect_volume" of os_brick/initiator/connectors/iscsi.py), and
        iscsid tries for two minutes: volumes of other nodes would wait.
        """
        try:
            socket.create_connection(netutils.parse_host_port(portal),
                                     PORTAL_TIMEOUT).close()
        except OSError as error:
            raise cinder_exception.VolumeDriverException(message=_(
                'The iSCSI portal %(portal)s of the node that has the volume '
                'cannot be reached from the node that needs it: '
                '%(error)s') % {'portal': portal, 'error': error})

    def _give_up_early(self, wanted):
        """Let iscsid not try for long to log in to what is taken back.

        os-brick makes a record of the target only where there is none.
        """
        try:
            self._node(wanted, '--interface', 'default', '--op', 'new')
            self._node(wanted, '--op', 'update', '-n',
                       'node.session.initial_login_retry_max', '-v',
                       '%d' % LOGIN_RETRIES)
        except (processutils.ProcessExecutionError, OSError) as error:
            LOG.warning('If the login to %(iqn)s fails, it takes longer: '
                        '%(error)s', {'iqn': wanted['target_iqn'],
                                      'error': error})

    def _not_at_boot(self, wanted):
        """Let no boot log in to a source, which may be down then.

        os-brick has told open-iscsi to (_connect_to_iscsi_portal in
        os_brick/initiator/connectors/iscsi.py), and the boot would wait for
        it. The driver logs in by itself when it has started.
        """
        try:
            self._node(wanted, '--op', 'update', '-n', 'node.startup', '-v',
                       'manual')
        except (processutils.ProcessExecutionError, OSError) as error:
            LOG.warning('The next boot of this node will log in to %(iqn)s: '
                        '%(error)s', {'iqn': wanted['target_iqn'],
                                      'error': error})

    @staticmethod
    def _node(wanted, *words):
        """Change what open-iscsi has on record of a target."""
        command.iscsiadm(['-m', 'node', '-T', wanted['target_iqn'], '-p',
                          wanted['target_portal'], *words])

    def cut(self, location):
        """End a session at once, whatever waits for it gets an error.

        :param location: provider_location; without one there is no session
        """
        if location:
            self.log_out(location.split()[1])

    @staticmethod
    def targets():
        """Return the iSCSI names of all targets with a session.

        By the kernel: it knows even where iscsid does not answer.
        """
        found = []
        for path in glob.glob(SESSIONS):
            try:
                with open(path) as stream:
                    found.append(stream.read().strip())
            except OSError:
                # It has just ended.
                continue
        return found

    @staticmethod
    def is_lost(disk):
        """Whether the session of an imported disk waits for its target.

        :param disk: its name, as the kernel has it
        """
        try:
            with open(block.session_of(disk) + '/state') as stream:
                return stream.read().strip() != 'LOGGED_IN'
        except OSError:
            # It was ended: requests get errors.
            return False

    @staticmethod
    def in_use(iqn):
        """Whether a device of this node lies on a disk of a session."""
        return any(
            os.listdir('/sys/class/block/%s/holders' % os.path.basename(
                os.path.realpath(path)))
            for path in glob.glob('/dev/disk/by-path/*-iscsi-%s-lun-*'
                                  % glob.escape(iqn)))

    @staticmethod
    def log_out(iqn):
        """End the sessions to a target; fine if there is none."""
        try:
            command.iscsiadm(['-m', 'node', '-T', iqn, '--logout'])
        except (processutils.ProcessExecutionError, OSError) as error:
            if getattr(error, 'exit_code', None) != NO_SESSION:
                LOG.warning('Logging out of %(iqn)s: %(error)s',
                            {'iqn': iqn, 'error': error})

    def disconnect(self, location, auth):
        """Log out of a source; fine if there is no session.

        The session is cut: there is nothing to flush on a disk that is
        read-only, and os-brick would wait for a source that is down.

        :raises: VolumeDriverException if the session is still there: it
            would be taken for that of a later move of the same volume
        """
        if not (location and auth):
            return
        self.cut(location)
        self._connector.disconnect_volume(
            properties(location, auth), None, force=True, ignore_errors=True)
        iqn = location.split()[1]
        if iqn in self.targets():
            raise cinder_exception.VolumeDriverException(message=_(
                'The iSCSI session to %s could not be ended; the log of '
                'cinder-volume says why.') % iqn)
