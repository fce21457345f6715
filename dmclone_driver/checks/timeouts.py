# SPDX-License-Identifier: Apache-2.0
"""Check that the time-outs of a request leave time for a move."""

from cinder.volume import configuration as cinder_configuration
from oslo_config import cfg
from oslo_messaging import opts as messaging_opts

from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.checks.result import Setting
from dmclone_driver.i18n import _
from dmclone_driver.move import deadline
from dmclone_driver.move import home
from dmclone_driver import opts

CONF = cfg.CONF
# Otherwise only the first RPC client would register it.
CONF.register_opts([option for _group, listed in messaging_opts.list_opts()
                    for option in listed
                    if option.name == 'rpc_response_timeout'])

#: Seconds of a request that are not for the preparation by the peer.
RESERVED = deadline.MARGIN + home.TIME_TO_TAKE_BACK
#: With less no peer can prepare anything.
LEAST = next(option.type.min for option in opts.MOVE_OPTS
             if option.name == 'dmclone_prepare_timeout')


def check(configuration: cinder_configuration.Configuration) -> Result:
    """Compare dmclone_prepare_timeout with the rest of the request."""
    limit, wanted = (CONF.rpc_response_timeout,
                     configuration.dmclone_prepare_timeout)
    left = limit - RESERVED
    text = _('rpc_response_timeout = %(limit)d leaves %(left)d seconds for a '
             'peer to prepare a volume') % {'limit': limit,
                                            'left': max(left, 0)}
    if left < wanted:
        return result.failed(
            'time-outs', _('%(text)s, and dmclone_prepare_timeout is '
                           '%(wanted)d') % {'text': text, 'wanted': wanted},
            _("set rpc_response_timeout to %d or more, in cinder-api's "
              'cinder.conf, too') % (wanted + RESERVED),
            configuration.config_group,
            Setting('rpc_response_timeout', limit, 'DEFAULT')
            if left < LEAST else None)
    return result.ok('time-outs', text, configuration.config_group)
