# SPDX-License-Identifier: Apache-2.0
"""The data that every laboratory begins with: schemas, users, volume type.

Made once, in a namespace and a state folder of its own, and kept in the
cache as a tar file: a program by itself (`python3 -m lab.seed FILE`).
"""

import os
import shutil
import subprocess
import sys

from lab import cleaning
from lab import command
from lab import config
from lab import control
from lab import database
from lab import errors
from lab import network
from lab import paths
from lab import venv

TARBALL = paths.CACHE / 'seed.tar'
_SERVICES = ('keystone', 'cinder-api', 'nova-api')
_FOLDERS = ['mariadb', 'keystone']


def inputs():
    """What the seed depends on, for the key of the cache."""
    here = paths.TEMPLATES.parent
    return [config.KEYSTONE, config.CINDER, config.GLANCE, config.PASSWORD,
            config.REGION, *database.NAMES, str(paths.VENV.resolve()),
            config.NOVA, config.PLACEMENT, config.NETWORKS,
            str(config.keystone()['identity']),
            *(path.read_text() for path in (
                here / 'seed.py', here / 'seed_cloud.py',
                venv.constraints()))]


def build(target):
    """Make the tar file, in a process with other folders and names."""
    state = paths.CACHE / 'seed'
    env = dict(os.environ, DMCLONE_LAB_STATE=str(state),
               DMCLONE_LAB_NAMESPACE='dmclone-lab-seed')
    done = subprocess.run([sys.executable, '-m', 'lab.seed', target],
                          env=env, cwd=paths.CHECKOUT, timeout=600)
    if done.returncode:
        raise errors.LabError('the seed could not be made, see above and %s'
                              % (state / 'logs'))
    shutil.rmtree(state)


def unpack():
    """Lay the seed into the state folder."""
    command.run(['tar', '-C', paths.STATE, '-xf', TARBALL], timeout=60)


def _schemas(plane):
    """All schemas at once: they wait for the disk more than they count."""
    plane.manage('keystone-manage', 'db_sync')
    plane.manage('cinder-manage', 'db', 'sync')
    plane.manage('glance-manage', 'db_sync')
    plane.manage('placement-manage', 'db', 'sync')
    plane.manage('nova-manage', 'api_db', 'sync')
    plane.manage('nova-manage', 'cell_v2', 'map_cell0')
    plane.manage('nova-manage', 'db', 'sync')
    plane.manage('nova-manage', 'cell_v2', 'create_cell', '--name', 'lab')


def _identity(plane):
    folder = paths.STATE / 'keystone'
    for kind, setup in (('fernet-keys', 'fernet_setup'),
                        ('credential-keys', 'credential_setup')):
        (folder / kind).mkdir(parents=True, mode=0o700)
        plane.manage('keystone-manage', setup, '--keystone-user', 'root',
                     '--keystone-group', 'root')
    plane.manage('keystone-manage', 'bootstrap',
                 '--bootstrap-password', config.PASSWORD,
                 '--bootstrap-region-id', config.REGION,
                 *(word for kind in ('public', 'internal', 'admin')
                   for word in ('--bootstrap-%s-url' % kind,
                                config.KEYSTONE)))


def _make(target):
    plane = control.Control()
    cleaning.clean()
    plane.configure()
    network.create({})
    database.create()
    plane.start('mariadb')
    database.create_databases()
    _schemas(plane)
    _identity(plane)
    for name in _SERVICES:
        plane.start(name)
    plane.program('lab.seed_cloud')
    for name in (*reversed(_SERVICES), 'mariadb'):
        plane.stop(name)
    command.run(['tar', '-C', paths.STATE, '-cf', target, *_FOLDERS])


def main():
    try:
        _make(sys.argv[1])
    except errors.LabError as e:
        sys.exit('lab: seed: %s' % e)
    finally:
        cleaning.clean()


if __name__ == '__main__':
    main()
