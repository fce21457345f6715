# SPDX-License-Identifier: Apache-2.0
"""dmclone-reconcile: show, or remove, what belongs to nobody on this node."""

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
from dmclone_driver import reconciler

CONF = cfg.CONF

OPTIONS = [
    cfg.StrOpt('backend', positional=True, required=True,
               help='The section of cinder.conf with the backend.'),
    cfg.BoolOpt('remove', default=False,
                help='Remove what can be removed. Without it nothing is '
                     'changed.'),
]


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


def main():
    """Print a line for each leftover; the exit code is 1 if any stays."""
    CONF.register_cli_opts(OPTIONS)
    logging.register_options(CONF)
    CONF(sys.argv[1:], project='cinder', version=version.version_string())
    # To whom has called this, not into the service's log.
    CONF.set_override('log_file', None)
    CONF.set_override('log_dir', None)
    CONF.set_override('use_stderr', True)
    logging.setup(CONF, 'cinder')
    logging.getLogger(None).logger.setLevel(logging.WARNING)
    try:
        backend = _open_backend(CONF.backend)
    except exception.BadConfiguration as error:
        return error.msg
    found = reconciler.Reconciler(backend).run(context.get_admin_context(),
                                               remove=CONF.remove)
    for leftover in found:
        print(leftover.line(removed=CONF.remove))
    return int(any(leftover.kept or not CONF.remove for leftover in found))


if __name__ == '__main__':
    sys.exit(main())
