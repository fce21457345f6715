# SPDX-License-Identifier: Apache-2.0
"""Shared by the commands: reads the configuration and opens a backend."""

import collections.abc
import os
import pwd
import shlex
import sys
import types

from cinder.common import config  # noqa: F401, registers Cinder's options
from cinder import context
from cinder import coordination
from cinder import objects
from cinder import rpc
from cinder import utils
from cinder.volume import configuration
import os_brick
from oslo_config import cfg
from oslo_log import log as logging
from oslo_privsep import priv_context

import dmclone_driver
from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import plan

CONF = cfg.CONF

# What a command does; returns an exit code.
_Plain = collections.abc.Callable[[context.RequestContext], int]
# The same with a backend.
_Command = collections.abc.Callable[[context.RequestContext, Backend], int]

BACKEND = cfg.StrOpt('backend', positional=True, required=True,
                     help='Section of cinder.conf that configures the '
                          'backend.')
DO_IT = cfg.BoolOpt('do-it', default=False,
                    help='Do what the lines say. Without it nothing is '
                         'changed.')


def load_driver() -> tuple[types.ModuleType, list[cfg.Opt]]:
    """Return the driver's module, and Cinder's options of a backend.

    Cinder's objects have to be registered first: both modules use them when
    they are imported.
    """
    objects.register_all()
    from cinder.volume import manager
    from dmclone_driver import driver
    return driver, manager.volume_backend_opts


def connect() -> None:
    """Make the database and the message bus usable."""
    objects.register_all()
    rpc.init(CONF)


def prepare_root() -> None:
    """Make the privileged helpers usable, as cinder-volume does."""
    os_brick.setup(CONF)
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))


def configuration_of(name: str, options: list[cfg.Opt]
                     ) -> configuration.Configuration:
    """Return the configuration of a backend.

    :param name: its section
    """
    return configuration.Configuration(options, config_group=name)


def become_service_user() -> None:
    """Give up root for the user of cinder-volume, the owner of its state.

    The service could not open locks that root creates there. What needs
    root is done by the privileged helpers, as in the service.
    """
    if os.geteuid() or not os.path.isdir(CONF.state_path):
        return
    owner = os.stat(CONF.state_path)
    if not owner.st_uid:
        return
    try:
        groups = os.getgrouplist(pwd.getpwuid(owner.st_uid).pw_name,
                                 owner.st_gid)
    except KeyError:
        groups = [owner.st_gid]
    os.setgroups(groups)
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)


def _open_backend(name: str) -> Backend:
    become_service_user()
    prepare_root()
    driver, options = load_driver()
    connect()
    coordination.COORDINATOR.start()
    configured = configuration_of(name, options)
    host = configured.safe_get('backend_host') or CONF.host
    return driver.DMCloneVolumeDriver(
        configuration=configured, host='%s@%s' % (host, name)).open_backend()


def run(options: list[cfg.Opt], function: _Command,
        arguments: list[str] | None = None) -> int | str:
    """Read options, and run a command with the backend that they name.

    :param options: of the command, :data:`BACKEND` among them
    :param function: of a context and the backend; returns an exit code
    :param arguments: instead of those of this process
    :returns: the exit code, or text for the error stream
    """
    return run_plainly(options, lambda found: function(
        found, _open_backend(CONF.backend)), arguments)


def run_without_backend(options: list[cfg.Opt], function: _Plain,
                        arguments: list[str] | None = None) -> int | str:
    """Read options, and run a command on any host that has Cinder's options.

    :param options: of the command
    :param function: of a context; returns an exit code
    :param arguments: instead of those of this process
    :returns: the exit code, or text for the error stream
    """
    def run_connected(found: context.RequestContext) -> int:
        connect()
        return function(found)
    return run_plainly(options, run_connected, arguments)


def configure(options: list[cfg.Opt], arguments: list[str]) -> None:
    """Read the configuration, and log to the caller's terminal.

    :param options: of the command
    :param arguments: values of these options and of Cinder's programs
    """
    CONF.register_cli_opts(options)
    logging.register_options(CONF)
    CONF(arguments, project='cinder', version=dmclone_driver.__version__)
    # Not to the service's log.
    CONF.set_override('log_file', None)
    CONF.set_override('log_dir', None)
    CONF.set_override('use_stderr', True)
    logging.setup(CONF, 'cinder')
    logging.getLogger(None).logger.setLevel(logging.WARNING)


def run_plainly(options: list[cfg.Opt], function: _Plain,
                arguments: list[str] | None = None) -> int | str:
    """Read options, and run a command that connects to nothing by itself.

    :param options: of the command
    :param function: of a context; returns an exit code
    :param arguments: instead of those of this process
    :returns: the exit code, or text for the error stream
    """
    configure(options, sys.argv[1:] if arguments is None else arguments)
    try:
        return function(context.get_admin_context())
    except (exception.BadConfiguration, exception.PeerError) as error:
        return error.msg
    except plan.Refused as error:
        return str(error)


def tell(found: collections.abc.Iterable[plan.Action], done: bool) -> int:
    """Print one line per action; return 1 if any is not done.

    :param found: iterator of :class:`dmclone_driver.move.plan.Action`
    :param done: whether they were done
    """
    code = 0
    for action in found:
        print(action.line(done), flush=True)
        code |= bool(action.obstacle or not done)
    return code
