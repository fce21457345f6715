# SPDX-License-Identifier: Apache-2.0
"""Check that the driver can become root, by rootwrap or by a helper."""

import shlex

from cinder import utils
from oslo_config import cfg

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import privsep

CONF = cfg.CONF

NAME = 'root'


def check(host: Host) -> Result:
    """Start the privileged helper, and ask it for its user."""
    helper = CONF[privsep.SECTION].helper_command
    way = shlex.join([*shlex.split(helper or utils.get_root_helper()), '...'])
    try:
        user = host.privileged_user()
        wrong = _('it runs as user %d') % user if user else None
    except Exception as error:
        wrong = exception.text_of(error)
    if wrong:
        return result.failed(
            NAME, _('the helper of [%(section)s] does not work: %(way)s '
                    '(%(wrong)s)') % {'section': privsep.SECTION, 'way': way,
                                      'wrong': wrong},
            _('correct its helper_command') if helper else
            _('install etc/cinder/rootwrap.d/dmclone.filters of this driver '
              'into the rootwrap.d of Cinder, and allow this user to run '
              'cinder-rootwrap with sudo'))
    return result.ok(NAME, way)
