# SPDX-License-Identifier: Apache-2.0
"""What the commands share: Cinder's configuration, and a backend's."""

import shlex
import sys

from cinder.common import config  # noqa: F401, registers Cinder's options
from cinder import context
from cinder import coordination
from cinder import objects
from cinder import rpc
from cinder import utils
from cinder import version
from cinder.volume import configuration
import os_brick
from oslo_config import cfg
from oslo_log import log as logging
from oslo_privsep import priv_context

from dmclone_driver import exception
from dmclone_driver.move import acts

CONF = cfg.CONF

BACKEND = cfg.StrOpt('backend', positional=True, required=True,
                     help='The section of cinder.conf with the backend.')
DO_IT = cfg.BoolOpt('do-it', default=False,
                    help='Do what is said. Without it nothing is changed.')


def load_driver():
    """Return the driver's module, and Cinder's options of a backend.

    Both name Cinder's objects as soon as they are imported.
    """
    objects.register_all()
    from cinder.volume import manager
    from dmclone_driver import driver
    return driver, manager.volume_backend_opts


def _open_backend(name):
    os_brick.setup(CONF)
    priv_context.init(root_helper=shlex.split(utils.get_root_helper()))
    driver, options = load_driver()
    rpc.init(CONF)
    coordination.COORDINATOR.start()
    configured = configuration.Configuration(options, config_group=name)
    host = configured.safe_get('backend_host') or CONF.host
    return driver.DMCloneVolumeDriver(
        configuration=configured, host='%s@%s' % (host, name)).open_backend()


def run(options, function):
    """Read options, and run a command with the backend that they name.

    :param options: of the command, :data:`BACKEND` among them
    :param function: of a context and the backend; returns an exit code
    :returns: the exit code, or text for the error stream
    """
    CONF.register_cli_opts(options)
    logging.register_options(CONF)
    CONF(sys.argv[1:], project='cinder', version=version.version_string())
    # To whom has called this, not into the service's log.
    CONF.set_override('log_file', None)
    CONF.set_override('log_dir', None)
    CONF.set_override('use_stderr', True)
    logging.setup(CONF, 'cinder')
    logging.getLogger(None).logger.setLevel(logging.WARNING)
    try:
        return function(context.get_admin_context(),
                        _open_backend(CONF.backend))
    except exception.BadConfiguration as error:
        return error.msg
    except acts.Refused as error:
        return str(error)


def tell(found, done):
    """Print a line for each act; the exit code is 1 if anything is left.

    :param found: iterator of :class:`dmclone_driver.move.acts.Act`
    :param done: whether they were done
    """
    code = 0
    for act in found:
        print(act.line(done), flush=True)
        code |= bool(act.kept or not done)
    return code
