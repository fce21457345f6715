# SPDX-License-Identifier: Apache-2.0
"""dmclone-forget-node: deal with what waits for a node that is lost."""

import sys

from oslo_config import cfg

from dmclone_driver.cmd import program
from dmclone_driver.move import lost_node
from dmclone_driver.move import peer_requests

CONF = cfg.CONF

OPTIONS = [
    program.BACKEND,
    cfg.StrOpt('node', positional=True, required=True,
               help='The node that never comes back, by its name before the '
                    '@ in "openstack volume service list".'),
    program.DO_IT,
]


def _forget(context, backend):
    lost = lost_node.LostNode(
        backend, peer_requests.PeerRequests(backend), CONF.node)
    return program.tell(lost.run(context, CONF.do_it), CONF.do_it)


def main():
    """Print a line for each thing to do; the exit code is 1 if any is."""
    return program.run(OPTIONS, _forget)


if __name__ == '__main__':
    sys.exit(main())
