# SPDX-License-Identifier: Apache-2.0
"""The control plane on the host: database, broker, APIs, scheduler."""

import os
import shutil

from lab import broker
from lab import command
from lab import config
from lab import config_nova
from lab import database
from lab import errors
from lab import etcd
from lab import inside
from lab import network
from lab import paths
from lab import proc
from lab import wait

ETC = paths.STATE / 'etc'
KEYSTONE = ETC / 'keystone.conf'
CINDER = ETC / 'cinder.conf'
GLANCE = ETC / 'glance-api.conf'
NOVA = ETC / 'nova.conf'
PLACEMENT = ETC / 'placement.conf'

# RabbitMQ first, since it takes longest to start; all start in parallel.
VOLUMES = ('epmd', 'rabbitmq', 'keystone', 'cinder-api', 'glance-api',
           'cinder-scheduler')
INSTANCES = ('placement', 'networks', 'nova-api', 'nova-conductor',
             'nova-scheduler')


def _environment(**more):
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(('OS_', 'PYTHON'))}
    env.update(PATH='%s:/usr/sbin:/usr/bin:/sbin:/bin' % (paths.VENV / 'bin'),
               PYTHONPATH=str(paths.CHECKOUT), PYTHONWARNINGS='ignore',
               PYTHONDONTWRITEBYTECODE='1', **more)
    return env


def _api(module, port, *more):
    """Return the command of an API under uwsgi: one process, 64 threads.

    Each request that waits for a node takes a thread, and tests stop many.
    """
    return [paths.VENV / 'bin/uwsgi', '--http-socket',
            '%s:%d' % (network.CONTROL, port), '--module',
            module + ':application', '--master', '--processes', '1',
            '--threads', '64', '--lazy-apps', '--need-app', '--die-on-term',
            '--buffer-size', '65535', '--http-timeout', '300',
            '--virtualenv', paths.VENV, '--disable-logging',
            '--add-header', 'Connection: close', *more]


class Service:
    """One program of the control plane."""

    def __init__(self, name, argv, ready, env=None):
        self.name = name
        self.argv = argv
        self.ready = ready
        self.env = env
        self.log = paths.LOGS / (name + '.log')


def _services():
    threads = {'OS_CINDER_DISABLE_EVENTLET_PATCHING': '1'}
    cinder = ['--config-file', CINDER]
    return [
        Service('mariadb', database.argv(), database.ready, _environment()),
        Service('etcd', etcd.argv(), etcd.ready, _environment()),
        Service('epmd', broker.epmd_argv(), lambda: True),
        Service('rabbitmq', broker.argv(), lambda: inside.listens(5672),
                broker.environment()),
        Service('keystone', _api('keystone.wsgi.api', 5000),
                lambda: inside.answers(5000, '/v3'),
                _environment(OS_KEYSTONE_CONFIG_FILES=str(KEYSTONE))),
        Service('cinder-api',
                _api('cinder.wsgi.api', 8776, '--pyargv',
                     '--config-file %s' % CINDER),
                lambda: inside.answers(8776), _environment(**threads)),
        Service('glance-api',
                # A node that uploads can be slower than uwsgi's 4 s per chunk,
                # and Cinder's chunks can be larger than uwsgi's 1 MiB.
                _api('glance.wsgi.api', 9292, '--http-chunked-input',
                     '--chunked-input-timeout', '60', '--socket-timeout',
                     '60', '--chunked-input-limit', '67108864'),
                lambda: inside.answers(9292),
                _environment(OS_GLANCE_CONFIG_DIR=str(ETC))),
        Service('cinder-scheduler',
                [paths.VENV / 'bin/cinder-scheduler', *cinder],
                lambda: True, _environment()),
        *_nova_services(),
    ]


def _nova_services():
    environment = _environment(
        OS_PLACEMENT_CONFIG_DIR=str(ETC), OS_NOVA_CONFIG_FILES='%s;%s' % (
            paths.VENV / 'etc/nova/api-paste.ini', NOVA))
    apis = [Service(name, _api(module, port),
                    lambda port=port: inside.answers(port), environment)
            for name, module, port in (
                ('placement', 'placement.wsgi.api', 8778),
                ('networks', 'lab.networks', 9696),
                ('nova-api', 'nova.wsgi.osapi_compute', 8774))]
    return apis + [
        Service(name, [paths.VENV / 'bin' / name, '--config-file', NOVA],
                lambda: True, environment)
        for name in ('nova-conductor', 'nova-scheduler')]


class Control:
    """The services of the control plane by name."""

    def __init__(self):
        self.services = {s.name: s for s in _services()}

    def _service(self, name):
        try:
            return self.services[name]
        except KeyError:
            raise errors.LabError('the control plane has no %s, but: %s' % (
                name, ' '.join(self.services)))

    def launch(self, name):
        """Start a service without waiting until it is ready."""
        service = self._service(name)
        proc.start(name, service.argv, service.log, env=service.env,
                   wrapper=network.wrapper(), cwd=paths.STATE)

    def wait_ready(self, name, timeout=120):
        """Wait until a service is ready."""
        service = self._service(name)

        def ready():
            proc.must_live(name, service.log)
            return service.ready()
        wait.until(ready, '%s to be ready' % name, timeout, 0.2,
                   lambda: paths.tail(service.log))

    def start(self, name, timeout=120):
        self.launch(name)
        self.wait_ready(name, timeout)

    def stop(self, name, timeout=30):
        proc.stop(self._service(name).name, timeout)

    def kill(self, name):
        proc.kill(self._service(name).name)

    def restart(self, name, timeout=120):
        self.stop(name)
        self.start(name, timeout)

    def log(self, name):
        """Return the whole log of a service."""
        return self._service(name).log.read_text(errors='replace')

    def configure(self, coordination='file'):
        """Create the folders, and write all settings."""
        for folder in (ETC, paths.LOGS, paths.STATE / 'locks',
                       paths.STATE / 'cinder', paths.STATE / 'nova',
                       paths.RUN):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ('store', 'staging', 'tasks'):
            (paths.STATE / 'images' / name).mkdir(parents=True, exist_ok=True)
        config.write(KEYSTONE, config.keystone())
        config.write(CINDER, config.cinder_control(coordination))
        config.write(GLANCE, config.glance())
        config.write(PLACEMENT, config_nova.placement())
        config.write(NOVA, config_nova.nova_control())
        (paths.STATE / 'clouds.yaml').write_text(config.clouds())
        database.configure()
        broker.configure()

    def manage(self, program, *words):
        """Run one of the *-manage programs; returns its output."""
        settings = {'keystone-manage': KEYSTONE, 'cinder-manage': CINDER,
                    'glance-manage': GLANCE, 'nova-manage': NOVA,
                    'placement-manage': PLACEMENT}[program]
        return command.run(
            [*network.wrapper(), paths.VENV / 'bin' / program,
             '--config-file', settings, *words],
            env=_environment(), timeout=300, cwd=paths.STATE)

    def program(self, module):
        """Run a module of the checkout with the environment's Python."""
        command.run([*network.wrapper(), paths.VENV / 'bin/python', '-m',
                     module], cwd=paths.CHECKOUT, timeout=120,
                    env=_environment())

    def forget(self):
        """Remove all data of the control plane."""
        for name in ('mariadb', 'rabbitmq', 'etcd', 'keystone', 'images',
                     'cinder', 'nova', 'locks', 'etc'):
            shutil.rmtree(paths.STATE / name, ignore_errors=True)
        (paths.STATE / 'clouds.yaml').unlink(missing_ok=True)
