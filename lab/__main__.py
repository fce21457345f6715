# SPDX-License-Identifier: Apache-2.0
"""The command line of the laboratory."""

import argparse
import dataclasses
import os
import subprocess
import sys

from lab import cleaning
from lab import errors
from lab import etcd
from lab import kernel
from lab import lab
from lab import logs
from lab import network
from lab import packaged
from lab import paths
from lab import settings
from lab import setup
from lab import status

_NODE_SERVICES = ('cinder-volume', 'cinder-backup', 'tgtd', 'iscsid', 'lio',
                  'libvirtd', 'nova-compute')


def _setup(args):
    setup.run(args.bare)


def chosen(args):
    """Return the settings of a command line."""
    choices = settings.Settings(**{name: getattr(args, name) for name in
                                   vars(settings.Settings())})
    return dataclasses.replace(choices, package=os.path.abspath(
        choices.package)) if choices.package else choices


def _up(args):
    choices = chosen(args)
    packaged.check(choices)
    setup.run(args.bare, etcd.PACKAGES if args.coordination == 'etcd' else (),
              packaged.make if args.package else None)
    lab.Lab(choices).up()


def _down(args):
    with cleaning.exclusively():
        cleaning.clean()
    errors.say('the laboratory is down, its logs are in %s' % paths.LOGS)


def _status(args):
    return status.show(lab.Lab.load())


def _check(args):
    lab.Lab.load().check()


def _command(args):
    return args.command[args.command[:1] == ['--']:]


def _run(args):
    shell = lab.Lab.load().node(args.node).shell
    return shell.interactive(_command(args))


def _node_verb(method):
    def do(args):
        node = lab.Lab.load().node(args.node)
        errors.say('%s: %s' % (args.node, args.verb))
        getattr(node, method)()
    return do


def _start(args):
    node = lab.Lab.load().node(args.node)
    errors.say('starting %s' % args.node)
    node.start()
    node.wait_ready()
    errors.say('%s is ready' % args.node)


def _service_verb(args):
    """Stop, start, restart or kill a service of a node or of the host."""
    here = lab.Lab.load()
    if args.node is None:
        if args.service in _NODE_SERVICES:
            raise errors.LabError('%s runs on nodes: name one' % args.service)
        target, verb = here.control, args.verb.partition('-')[0]
    else:
        target, verb = here.node(args.node), args.verb.replace('-', '_')
    errors.say('%s %s on %s' % (args.verb, args.service,
                                args.node or 'the control plane'))
    getattr(target, verb)(args.service)
    if args.node and verb in ('start_service', 'restart'):
        target.wait_ready()
    errors.say('done')


def _logs(args):
    if args.folder:
        logs.collect(args.folder)
    print(args.folder or paths.LOGS)


def _exec(args):
    here = lab.Lab.load()
    argv = [*network.wrapper(), *(_command(args) or ['bash'])]
    return subprocess.call(argv, env=here.environment())


def _add_up(verbs):
    verb = verbs.add_parser('up', help='set up, and start everything')
    defaults = settings.Settings()
    verb.add_argument('--bare', action='store_true',
                      help='nodes only, no OpenStack')
    verb.add_argument('--nova', action='store_true',
                      help='with instances: Nova, Placement, libvirt, QEMU')
    verb.add_argument('--thin', action='store_true',
                      help='with thin volumes: lvm_type = thin')
    verb.add_argument('--nodes', type=int, choices=(1, 2, 3),
                      default=defaults.nodes)
    verb.add_argument('--kernel', choices=list(kernel.KINDS),
                      default=defaults.kernel)
    verb.add_argument('--target', choices=('tgt', 'lio'),
                      default=defaults.target, help='the iSCSI target')
    verb.add_argument('--driver', choices=('dmclone', 'lvm', 'both'),
                      default=defaults.driver,
                      help='Cinder driver of the backend dmclone; both: '
                      'dmclone, and a second backend lvm')
    verb.add_argument('--mode', choices=('eventlet', 'threads'),
                      default=defaults.mode,
                      help='threading of cinder-volume')
    verb.add_argument('--coordination', choices=('file', 'etcd'),
                      default=defaults.coordination,
                      help="the store of Cinder's locks: files on each "
                      'host, or one etcd for all hosts')
    verb.add_argument('--package', default=defaults.package, metavar='FILE',
                      help="nodes with Debian 13, its Cinder, and this "
                      "Debian package of the driver, instead of the "
                      "checkout's; needs DMCLONE_LAB_RELEASE=%s"
                      % packaged.RELEASE)
    verb.add_argument('--memory', type=int, default=defaults.memory,
                      help='MiB per node (1024, or 2048 with --nova)')
    verb.set_defaults(do=_up)


def _add_simple(verbs):
    verb = verbs.add_parser('setup', help='install and build missing parts')
    verb.add_argument('--bare', action='store_true',
                      help='only for nodes without OpenStack')
    verb.set_defaults(do=_setup)
    for name, do, text in (
            ('down', _down, 'stop everything, remove all but the logs'),
            ('status', _status, 'show services, nodes and their health'),
            ('check', _check, 'fail if a node has hung or crashed')):
        verbs.add_parser(name, help=text).set_defaults(do=do)
    verb = verbs.add_parser('logs', help='print where the logs are, or copy '
                            'all of them into a folder')
    verb.add_argument('folder', nargs='?')
    verb.set_defaults(do=_logs)
    verb = verbs.add_parser('exec', help='run a command on the host inside '
                            'the lab\'s network, as the cloud\'s admin')
    verb.add_argument('command', nargs=argparse.REMAINDER)
    verb.set_defaults(do=_exec)


def _add_node(verbs):
    for name, do, text in (
            ('cut-power', _node_verb('cut_power'), 'cut the power'),
            ('start', _start, 'power on, wait until services are ready'),
            ('cut-network', _node_verb('cut_network'), 'disconnect it'),
            ('restore-network', _node_verb('restore_network'),
             'connect it again')):
        verb = verbs.add_parser(name, help='a node: ' + text)
        verb.add_argument('node')
        verb.set_defaults(do=do)
    for name, text in (('run', 'run a command on a node'),
                       ('shell', 'open a shell on a node')):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument('node')
        verb.add_argument('command', nargs=argparse.REMAINDER)
        verb.set_defaults(do=_run)
    for name in ('stop', 'start-service', 'restart', 'kill'):
        verb = verbs.add_parser(name, help='a service of a node, or of the '
                                'control plane if no node is given')
        verb.add_argument('service')
        verb.add_argument('node', nargs='?')
        verb.set_defaults(do=_service_verb)


def parser():
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog='tools/lab', description='Nodes and OpenStack services: see '
        'lab/__init__.py. Needs root; the first set-up takes minutes.')
    verbs = found.add_subparsers(dest='verb', required=True, metavar='VERB')
    _add_simple(verbs)
    _add_up(verbs)
    _add_node(verbs)
    return found


def main():
    commands = parser()
    args = commands.parse_args()
    if os.geteuid():
        commands.error('the laboratory has to be run as root')
    try:
        return args.do(args) or 0
    except errors.LabError as e:
        print('lab: %s' % e, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('lab: interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
