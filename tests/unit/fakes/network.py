# SPDX-License-Identifier: Apache-2.0
"""The simulated network between the nodes: iSCSI and RPC."""

import itertools
import json

from cinder import exception
from os_brick import exception as brick_exception
import oslo_messaging as messaging

from dmclone_driver.node.initiator import LOCAL
from tests.unit.fakes import steps

PREFIX = 'iqn.2010-10.org.openstack:'
DISKS = '/dev/disk/by-path/'


class Target:
    """Replaces dmclone_driver.node.targets: a node's exports."""

    def __init__(self, node):
        self._node = node
        self._numbers = itertools.count(1)
        #: {iSCSI name: (path, initiator, authentication)}
        self.exports = {}

    def _step(self, what, function, *args):
        return self._node.cloud.steps.run(
            '%s: %s' % (self._node.name, what),
            exception.ISCSITargetCreateFailed(volume_id='injected'),
            function, *args)

    def export(self, name, path, initiator, auth=None):
        return self._step('export ' + name, self._export, PREFIX + name,
                          path, initiator, auth)

    def _export(self, iqn, path, initiator, auth):
        if not auth or self.exports.get(iqn, ())[:2] != (path, initiator):
            auth = auth or 'CHAP user secret%d' % next(self._numbers)
            self._close(iqn)
            self._node.kernel.get(path).opened += 1
            self.exports[iqn] = (path, initiator, auth)
        return '%s:3260,1 %s 1' % (self._node.address, iqn), auth

    def unexport(self, name):
        self._step('unexport ' + name, self._close, PREFIX + name)

    def reboot(self):
        """Keep the names of exports that refuse logins, like tgt's files."""
        self.exports = dict.fromkeys(self.exports, (None, None, None))

    def forget(self):
        """Restart the target's program: it has no exports."""
        for iqn in list(self.exports):
            self._close(iqn)

    def forget_saved(self):
        """Do nothing: nobody saves targets."""

    def names(self):
        return [iqn.removeprefix(PREFIX) for iqn in self.exports]

    def _close(self, iqn):
        path, *rest = self.exports.pop(iqn, (None,))
        device = path and self._node.kernel.get(path)
        if device:
            device.opened -= 1


class Initiator:
    """Replaces dmclone_driver.node.initiator: a node's sessions."""

    def __init__(self, node, timeout):
        self._node = node
        self.timeout = timeout

    def _step(self, what, function, *args):
        return self._node.cloud.steps.run(
            '%s: %s' % (self._node.name, what),
            brick_exception.BrickException(message='injected'),
            function, *args)

    def name(self):
        return self._node.initiator

    def connect(self, location, auth):
        return self._step('log in', self._connect, location, auth)

    def _connect(self, location, auth):
        if auth == LOCAL:
            return location
        portal, iqn, lun = location.split()
        home = next(node for node in self._node.cloud.nodes.values()
                    if node.address == portal.partition(':')[0])
        path, initiator, expected = home.target.exports.get(
            iqn, (None, None, None))
        if (not path or home.down or auth != expected or
                initiator != self._node.initiator):
            raise brick_exception.FailedISCSITargetPortalLogin(message=iqn)
        disk = DISKS + iqn
        self._node.kernel.disks[disk] = home.kernel.size(path)
        self._node.kernel.ended.discard(disk)
        return disk

    def cut(self, location):
        self._step('cut', self._cut, location)

    def _cut(self, location):
        self._node.kernel.fail_waiting()
        if location and not location.startswith('/dev/'):
            self._node.kernel.ended.add(DISKS + location.split()[1])

    def disconnect(self, location, auth):
        if location and auth and auth != LOCAL:
            self.log_out(location.split()[1])

    def targets(self):
        return [disk.removeprefix(DISKS) for disk in self._node.kernel.disks]

    def is_lost(self, disk):
        iqn = disk.removeprefix(DISKS)
        kernel = self._node.kernel
        return disk in kernel.disks and disk not in kernel.ended and (
            disk in kernel.lost or not any(
                node.target.exports.get(iqn, (None, None))[1] ==
                self._node.initiator
                for node in self._node.cloud.nodes.values()))

    def in_use(self, iqn):
        return bool(self._node.kernel.users(DISKS + iqn))

    def log_out(self, iqn):
        self._step('log out', self._node.kernel.disks.pop, DISKS + iqn, None)


class Rpc:
    """Replaces cinder.rpc as used by rpcapi."""

    def __init__(self, cloud):
        self._cloud = cloud

    def get_client(self, target):
        return Client(self._cloud)

    def get_server(self, target, endpoints):
        return Server(self._cloud, target, endpoints)


class Server:
    """An RPC server, which answers after its start."""

    def __init__(self, cloud, target, endpoints):
        self._cloud, self._target = cloud, target
        self.endpoint, = endpoints

    def start(self):
        self._cloud.by_host[self._target.server].server = self


class Client:
    """An RPC client, which runs a method on another node."""

    def __init__(self, cloud, server=None):
        self._cloud, self._server = cloud, server

    def prepare(self, server, timeout, version):
        if not timeout:
            raise AssertionError('waits for ever')
        return Client(self._cloud, server)

    def call(self, context, method, **arguments):
        caller = self._cloud.here
        result = self._cloud.steps.run(
            '%s: ask %s to %s' % (caller.name, self._server, method),
            messaging.MessagingTimeout('injected'), self._call, context,
            method, arguments)
        if caller.down:
            raise steps.Killed(caller.name)
        return result

    def _call(self, context, method, arguments):
        json.dumps(arguments)
        node = self._cloud.by_host[self._server]
        if node.down or not node.server:
            raise messaging.MessagingTimeout('nobody there')
        with self._cloud.on(node):
            try:
                return getattr(node.server.endpoint, method)(context,
                                                             **arguments)
            except steps.Killed:
                # The other process was killed: the caller gets no answer.
                node.down = True
                raise messaging.MessagingTimeout('killed')
            except exception.CinderException:
                raise
            except Exception as error:
                raise messaging.RemoteError(type(error).__name__, str(error))
