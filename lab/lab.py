# SPDX-License-Identifier: Apache-2.0
"""The laboratory: bring it up, load it, check it."""

import concurrent.futures
import os
import pathlib
import shutil

from lab import cleaning
from lab import config
from lab import control
from lab import database
from lab import errors
from lab import inside
from lab import network
from lab import node
from lab import paths
from lab import seed
from lab import settings as settings_module

_MAPPINGS = 1048576


def _allow_mappings():
    """Raise the host's limit of mappings, since UML maps each page by itself.

    Above the default of 65530 mappings a process on a node, such as one that
    reads 64 MiB, gets a segmentation fault.
    """
    limit = pathlib.Path('/proc/sys/vm/max_map_count')
    if int(limit.read_text()) < _MAPPINGS:
        limit.write_text(str(_MAPPINGS))


class Lab:
    """The nodes and the control plane."""

    def __init__(self, settings):
        self.settings = settings
        self.control = control.Control()
        self.nodes = {name: node.Node(name, number, settings)
                      for name, number in settings.names().items()}

    @classmethod
    def load(cls):
        """Return the laboratory that is up.

        :raises LabError: if there is none
        """
        settings = settings_module.Settings.load()
        if not network.exists():
            raise errors.LabError('the network namespace is gone (was the '
                                  'machine restarted?): run `tools/lab down`')
        return cls(settings)

    def node(self, name):
        try:
            return self.nodes[name]
        except KeyError:
            raise errors.LabError('no node %s, there are: %s' % (
                name, ' '.join(self.nodes)))

    def first_services(self):
        """Return the services that have to run before others start."""
        return ('mariadb', 'etcd') if self.settings.coordination == 'etcd' \
            else ('mariadb',)

    def control_services(self):
        """Return the other services of the control plane."""
        return control.VOLUMES + (
            control.INSTANCES if self.settings.nova else ())

    # Clients

    def cloud(self, user='admin'):
        """Return a connection of openstacksdk, as `admin` or as `demo`.

        Works in a thread that is inside the namespace: see enter().
        """
        import openstack
        files = [str(paths.STATE / 'clouds.yaml')]
        loader = openstack.config.OpenStackConfig(config_files=files)
        return openstack.connection.Connection(config=loader.get_one(user))

    @staticmethod
    def enter():
        """Move the calling thread into the laboratory's namespace."""
        inside.enter()

    def sql(self, statement, database_name='cinder'):
        """Run a statement in the database; return its rows as tuples."""
        try:
            import pymysql
        except ImportError:     # the plain interpreter of the command line
            return database.execute(statement, database_name)
        connection = pymysql.connect(
            unix_socket=str(database.SOCKET), user='root',
            database=database_name, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def environment(self, user='admin'):
        """Return the environment of clients inside the namespace."""
        env = dict(os.environ, **config.environment(user))
        env['PATH'] = '%s:%s' % (paths.VENV / 'bin', env['PATH'])
        return env

    # Up

    def up(self):
        """Start everything on fresh disks."""
        with cleaning.exclusively():
            self._up()

    def _up(self):
        if network.exists():
            raise errors.LabError('a laboratory is up, or not completely '
                                  'down: run `tools/lab down` first')
        cleaning.clean()
        _allow_mappings()
        shutil.rmtree(paths.LOGS, ignore_errors=True)
        self.settings.save()
        network.create(self.settings.names())
        if not self.settings.bare:
            names = self.first_services()
            errors.say('starting ' + ', '.join(names))
            self.control.configure(self.settings.coordination)
            seed.unpack()
            for name in names:
                self.control.start(name)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(self._boot, n) for n in self.nodes.values()]
            if not self.settings.bare:
                self._start_control()
            for job in jobs:
                job.result()
        errors.say('the laboratory is up')

    def _boot(self, n):
        """Boot a node on fresh disks, with its services."""
        n.machine.make_disks()
        if not self.settings.bare:
            target = 'tgtd' if self.settings.target == 'tgt' else 'lio'
            n.enable('iscsid', target, 'cinder-volume')
        if self.settings.nova:
            n.enable('libvirtd', 'nova-compute')
        errors.say('starting %s' % n.name)
        # Installing the package takes a while.
        n.start(300 if self.settings.package else 120)
        errors.say('%s has booted' % n.name)
        n.wait_ready()
        if not self.settings.bare:
            errors.say('cinder-volume on %s is ready' % n.name)
        if self.settings.nova:
            errors.say('nova-compute on %s is ready' % n.name)

    def _start_control(self):
        names = self.control_services()
        errors.say('starting ' + ', '.join(names))
        for name in names:
            self.control.launch(name)
        try:
            for name in names:
                self.control.wait_ready(name)
        except errors.LabError:
            errors.say('the control plane failed; the boot of the nodes may '
                       'take some more time')
            raise
        if self.settings.nova:
            self.control.program('lab.guest_images')
        errors.say('the control plane is ready')

    # Health

    def check(self):
        """Raise if a node has hung or crashed by itself."""
        for n in self.nodes.values():
            n.check()
