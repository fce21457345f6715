# SPDX-License-Identifier: Apache-2.0
"""The command line of the laboratory."""

import argparse
import sys

from tests.lab import errors
from tests.lab import lab
from tests.lab import settings
from tests.lab import setup


def _up(args):
    setup.run(bare=args.bare)
    lab.Lab(settings.Settings(nodes=args.nodes, bare=args.bare)).up()


def _run(args):
    shell = lab.Lab.load().node(args.node).shell
    return shell.interactive(args.words)


def main():
    parser = argparse.ArgumentParser(prog='tools/lab')
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser('setup')
    verb.add_argument('--bare', action='store_true')
    verb.set_defaults(do=lambda args: setup.run(args.bare))
    verb = verbs.add_parser('up')
    verb.add_argument('--bare', action='store_true')
    verb.add_argument('--nodes', type=int, default=2)
    verb.set_defaults(do=_up)
    verb = verbs.add_parser('down')
    verb.set_defaults(do=lambda args: lab.down())
    verb = verbs.add_parser('run')
    verb.add_argument('node')
    verb.add_argument('words', nargs=argparse.REMAINDER)
    verb.set_defaults(do=_run)
    args = parser.parse_args()
    try:
        return args.do(args) or 0
    except errors.LabError as e:
        print('lab: %s' % e, file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
