# SPDX-License-Identifier: Apache-2.0
"""dmclone-forget-node: finish or give up what depends on a lost node."""

import sys

from cinder import context as cinder_context
from oslo_config import cfg

from dmclone_driver.cmd import program
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lost_node
from dmclone_driver.move import peer_requests

CONF = cfg.CONF

OPTIONS = [
    program.BACKEND,
    cfg.StrOpt('node', positional=True, required=True,
               help='Name of the node that is lost for good: the part before '
                    'the @ in "openstack volume service list".'),
    program.DO_IT,
]


def _forget(context: cinder_context.RequestContext, backend: Backend) -> int:
    lost = lost_node.LostNode(
        backend, peer_requests.PeerRequests(backend), CONF.node)
    return program.tell(lost.run(context, CONF.do_it), CONF.do_it)


def main(arguments: list[str] | None = None) -> int | str:
    """Print one line per action; return 1 if any is not done."""
    return program.run(OPTIONS, _forget, arguments)


if __name__ == '__main__':
    sys.exit(main())
