# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of a page of the documentation in the laboratory.

They are run as they are on the page. Programs that the laboratory does not
have are functions of the shell here, see the page "Maintenance".
"""

import re
import shlex
import subprocess

from lab import network
from lab import pages

#: Seconds that the commands of one block may take.
TIMEOUT = 900

#: The services of nodes and of the control plane by the names of systemd:
#: {unit: the name in the laboratory}.
ON_NODES = {'cinder-volume': 'cinder-volume', 'nova-compute': 'nova-compute',
            'tgt': 'tgtd', 'iscsid': 'iscsid'}
ON_CONTROL = {'mariadb': 'mariadb', 'rabbitmq-server': 'rabbitmq'}

#: Where a reboot is requested, gone after it.
REBOOT = '/run/lab/reboot'

#: Functions of the shell, instead of programs that nodes do not have.
#: A service that is stopped with systemctl is started at the next boot.
ON_NODE = '''
systemctl() {
    [ "$1 ${2-}" != "enable --now" ] || set -- start "$3"
    local name=${2-}
    case $1 in
    reboot) sync && touch %(reboot)s; return ;;
    daemon-reload) return ;;
    --quiet) echo "not here: ${3-}" >&2; return 3 ;;
    stop|start|restart) ;;
    *) echo "no systemctl $*" >&2; return 2 ;;
    esac
    case $name in
    %(names)s
    *) echo "no unit $name" >&2; return 2 ;;
    esac
    lab-service "$1" "$name" && touch "/lab/enabled/$name"
}
apt-get() { echo "not here: apt-get $*"; }
python3() {
    case "$*" in
    "-m pip "*) echo "not here: python3 $*" ;;
    *) command python3 "$@" ;;
    esac
}
crudini() {
    [ "$1" = --set ] || { echo "no crudini $1" >&2; return 2; }
    shift
    command python3 -c '
import configparser, sys
path, section, option, value = sys.argv[1:]
parser = configparser.RawConfigParser(strict=False)
parser.optionxform = str
parser.read(path)
if section != "DEFAULT" and not parser.has_section(section):
    parser.add_section(section)
parser.set(section, option, value)
with open(path, "w") as stream:
    parser.write(stream)
' "$@"
}
command_of_driver() {
    (
        . /lab/node.env
        export PYTHONPATH=$CHECKOUT PYTHONDONTWRITEBYTECODE=1
        export PYTHONWARNINGS=ignore PATH=$VENV/bin:$PATH
        exec python -m "dmclone_driver.cmd.$@"
    )
}
dmclone() { command_of_driver dmclone "$@"; }
dmclone-check() { command_of_driver check "$@"; }
dmclone-reconcile() { command_of_driver reconcile "$@"; }
dmclone-forget-node() { command_of_driver forget_node "$@"; }
''' % {'reboot': REBOOT, 'names': '\n    '.join(
    '%s) name=%s ;;' % item for item in ON_NODES.items())}

_SYSTEMCTL = re.compile(r'systemctl (stop|start|restart) (\S+)')


def settings(values):
    """Return the lines that set a reader's variables."""
    return ''.join('%s=%s\n' % (name, shlex.quote(str(value)))
                   for name, value in values.items())


class Recipes:
    """A mixin for tests that have `lab`.

    :cvar PAGE: name of the page, e.g. ``admin/maintenance``
    """

    PAGE = None

    def follow(self, section, *parts, at=None, **values):
        """Run the commands of a section.

        :param parts: numbers of the section's blocks, from 0; all if none is
            given
        :param at: the node that the section is about
        :param values: the variables that the reader sets
        :returns: what the last block has printed
        """
        found = [block for block in pages.blocks(self.PAGE)
                 if block.section == section]
        assert found, section
        said = []
        for number, block in enumerate(found):
            if not parts or number in parts:
                said = self._run_block(block, at, values)
                self.told(block, number, said[0])
        return ''.join(said)

    def values_of(self, node):
        """Return the variables that the reader sets on each node."""
        return {}

    def told(self, block, number, text):
        """Take what a block has printed, on the first node if on several.

        :param number: of the block in its section
        """

    def _run_block(self, block, at, values):
        """Run a block; return what it has printed, on each node."""
        script = settings(values) + block.script
        if block.where in ('administrator', 'owner'):
            return [self._run_as_user(
                'admin' if block.where == 'administrator' else 'demo',
                script)]
        if block.where == 'control plane':
            return [self._run_on_control(block.script)]
        if block.where == 'each node':
            return [self._run_on_node(
                node, settings(self.values_of(node)) + script)
                for node in self.lab.nodes.values()]
        if block.where == 'any host':
            return [self._run_on_node(self._host(at), script)]
        assert block.where in ('the node', 'another node'), block
        return [self._run_on_node(at, script)]

    def _host(self, but):
        """Return a host with Cinder's configuration, except for a node."""
        return next(node for node in self.lab.nodes.values()
                    if node is not but)

    def _run_as_user(self, user, script):
        done = subprocess.run(
            [*network.wrapper(), 'bash', '-e', '-u', '-c', script],
            env=self.lab.environment(user), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT)
        self.assertEqual(0, done.returncode, '%s\n%s\n%s' % (
            script, done.stdout, done.stderr))
        return done.stdout

    @staticmethod
    def _run_on_node(node, script):
        said = node.run('bash -e -u -c ' + shlex.quote(ON_NODE + script),
                        timeout=TIMEOUT, input='')
        if node.try_run('test -e ' + REBOOT)[0] == 0:
            # Harder than a reboot: no service is told.
            node.cut_power()
            node.start()
            node.wait_ready()
        return said

    def _run_on_control(self, script):
        for line in script.splitlines():
            verb, unit = _SYSTEMCTL.fullmatch(line).groups()
            getattr(self.lab.control, verb)(ON_CONTROL[unit])
        return ''
