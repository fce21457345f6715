# SPDX-License-Identifier: Apache-2.0
"""MariaDB, with separate data, socket and settings."""

import socket

from lab import command
from lab import config
from lab import network
from lab import paths

FOLDER = paths.STATE / 'mariadb'
SOCKET = paths.RUN / 'mariadb.sock'
NAMES = ('keystone', 'cinder', 'glance', 'placement', 'nova_api', 'nova',
         'nova_cell0')
_FILE = paths.STATE / 'etc/mariadb.cnf'


def configure():
    config.write(_FILE, {'mariadbd': {
        'datadir': FOLDER, 'socket': SOCKET, 'user': 'root',
        'pid_file': paths.RUN / 'mariadb.pid',
        'bind_address': network.CONTROL, 'port': '3306',
        'default_time_zone': '+00:00',
        'skip_name_resolve': '1', 'max_connections': '1000',
        'character_set_server': 'utf8mb3',
        # Survives a crash of MariaDB, which is tested, not of the host.
        'innodb_flush_log_at_trx_commit': '2',
        'innodb_buffer_pool_size': '128M', 'innodb_log_file_size': '32M',
        'performance_schema': '0'}})


def create():
    """Create the files of an empty database server."""
    command.run(['mariadb-install-db', '--defaults-file=%s' % _FILE,
                 '--auth-root-authentication-method=normal',
                 '--skip-test-db', '--datadir=%s' % FOLDER], timeout=120)


def argv():
    return ['mariadbd', '--defaults-file=%s' % _FILE]


def ready():
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(SOCKET))
        except OSError:
            return False
    return True


def execute(statement, database='cinder'):
    """Run a statement; return the rows, every value a string or None."""
    out = command.run(['mariadb', '--no-defaults', '-u', 'root',
                       '--socket=%s' % SOCKET, '-N', '-B', database],
                      input=statement, timeout=30)
    return [tuple(None if value == 'NULL' else value
                  for value in line.split('\t'))
            for line in out.splitlines()]


def create_databases():
    for name in NAMES:
        execute("CREATE DATABASE %s; GRANT ALL ON %s.* TO 'lab'@'%%' "
                "IDENTIFIED BY '%s'" % (name, name, config.PASSWORD), 'mysql')
