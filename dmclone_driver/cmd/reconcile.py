# SPDX-License-Identifier: Apache-2.0
"""dmclone-reconcile: show leftovers and pending jobs of this node."""

import sys

from cinder import context as cinder_context
from oslo_config import cfg

from dmclone_driver.cmd import program
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import left_behind
from dmclone_driver.move import leftovers
from dmclone_driver.move import restorer

CONF = cfg.CONF

OPTIONS = [
    program.BACKEND,
    cfg.BoolOpt('remove', default=False,
                help='Remove the leftovers that can be removed. Without it '
                     'nothing is changed.'),
    cfg.BoolOpt('jobs', default=False,
                help='Instead of showing leftovers, ask cinder-volume on '
                     'this node what it is still trying to do. Nothing is '
                     'changed.'),
    cfg.BoolOpt('left-behind', default=False,
                help='Instead of showing leftovers, show the snapshots on '
                     'this node whose volumes have moved away, and the space '
                     'that they hold. Nothing is changed.'),
    cfg.StrOpt('restore', metavar='VOLUME',
               help='Instead of showing leftovers, change the database to '
                    'point to the logical volume on this node that is the '
                    'home of a volume. Without --do-it the change is only '
                    'printed.'),
    program.DO_IT,
]


def _reconcile(context: cinder_context.RequestContext,
               backend: Backend) -> int:
    if CONF.restore:
        return program.tell(restorer.Restorer(backend).run(
            context, CONF.restore, CONF.do_it), CONF.do_it)
    if CONF.left_behind:
        return _show_left_behind(backend)
    if CONF.jobs:
        return _show_jobs(backend.client.jobs(context, backend.host))
    found = leftovers.Leftovers(backend).run(context, remove=CONF.remove)
    for leftover in found:
        print(leftover.line(removed=CONF.remove))
    return int(any(leftover.kept or not CONF.remove for leftover in found))


def _show_left_behind(backend: Backend) -> int:
    """Print one line per logical volume; all is as it should be."""
    for each in left_behind.find(backend.group.vg_name):
        print(each.line())
    return 0


def _show_jobs(kinds: dict[str, list[str]]) -> int:
    """Print one line per job; return 1 if there is any.

    :param kinds: {name of a kind of jobs: ids of their objects}
    """
    for kind, keys in sorted(kinds.items()):
        for key in keys:
            print('%s: %s' % (kind, key))
    return int(bool(kinds))


def main(arguments: list[str] | None = None) -> int | str:
    """Print one line per leftover; return 1 if any is not removed."""
    return program.run(OPTIONS, _reconcile, arguments)


if __name__ == '__main__':
    sys.exit(main())
