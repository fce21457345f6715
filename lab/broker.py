# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ, with separate folders, cookie and Erlang names."""

import os

from lab import config
from lab import network
from lab import paths

FOLDER = paths.STATE / 'rabbitmq'
_SETTINGS = """\
listeners.tcp.1 = %(ip)s:5672
default_user = lab
default_pass = %(password)s
loopback_users.guest = false
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
heartbeat = 20
log.console = true
log.console.level = info
log.file = false
"""


def configure():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / 'rabbitmq.conf').write_text(_SETTINGS % {
        'ip': network.CONTROL, 'password': config.PASSWORD})
    (FOLDER / 'plugins').write_text('[].\n')


def environment():
    return dict(
        os.environ, HOME=str(FOLDER),
        RABBITMQ_CONF_ENV_FILE=str(FOLDER / 'none'),
        RABBITMQ_BASE=str(FOLDER),
        RABBITMQ_MNESIA_BASE=str(FOLDER / 'mnesia'),
        RABBITMQ_LOG_BASE=str(FOLDER / 'log'),
        RABBITMQ_SCHEMA_DIR=str(FOLDER / 'schema'),
        RABBITMQ_CONFIG_FILE=str(FOLDER / 'rabbitmq.conf'),
        RABBITMQ_ENABLED_PLUGINS_FILE=str(FOLDER / 'plugins'),
        RABBITMQ_GENERATED_CONFIG_DIR=str(FOLDER / 'config'),
        RABBITMQ_PID_FILE=str(FOLDER / 'pid'),
        RABBITMQ_NODENAME='lab@localhost',
        ERL_EPMD_ADDRESS='127.0.0.1',
        # No busy waiting: the whole laboratory runs on two cores.
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=(
            '-kernel inet_dist_use_interface {127,0,0,1} '
            '+sbwt none +sbwtdcpu none +sbwtdio none'))


def argv():
    return ['/usr/lib/rabbitmq/bin/rabbitmq-server']


def epmd_argv():
    """Return the command of epmd, which Erlang would start as a daemon."""
    return ['epmd', '-address', '127.0.0.1']
