# SPDX-License-Identifier: Apache-2.0
"""A machine on which DevStack's scripts run the plugin, as data for tests."""

import configparser
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import textwrap

TOP = pathlib.Path(__file__).parents[2]
SAMPLES = TOP / 'devstack/samples'
_RUN = pathlib.Path(__file__).with_name('run.sh')


class Machine:
    """A machine in a folder, with a local.conf; see machine.sh."""

    def __init__(self, folder: pathlib.Path, local_conf: str,
                 devstack: str | None = None,
                 plugin: pathlib.Path = TOP) -> None:
        """Create the machine.

        :param local_conf: text of local.conf
        :param devstack: checkout of DevStack; without one, the stand-in
        :param plugin: the checkout with the plugin
        """
        self.folder = folder
        self._devstack = devstack
        for name in ('etc/lvm', 'groups', 'bin', 'dest/data', 'tmp'):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name in ('devices', 'sessions', 'records', 'busy', 'processes',
                     'missing-modules', 'log'):
            (folder / name).touch()
        (folder / 'dest/dmclone_driver').symlink_to(plugin)
        (folder / 'local.conf').write_text(local_conf.replace(
            '[[local|localrc]]\n',
            '[[local|localrc]]\nDEST=%s\n' % (folder / 'dest'), 1))
        self.write('etc/lvm/lvm.conf', 'devices {',
                   '\t# global_filter = [ "a|.*|" ]', '}')
        for name in ('cinder-python', 'cinder-manage', 'uwsgi'):
            self.program(name, 'exit 0')

    def publish(self) -> None:
        """Let DevStack fetch the plugin from a repository with one branch."""
        repository = self.folder / 'repository'
        installed = self.folder / 'dest/dmclone_driver'
        for name in ('devstack', 'etc'):
            shutil.copytree(installed / name, repository / name)
        installed.unlink()
        for words in (['init', '-q', '-b', 'main'], ['add', '.'],
                      ['-c', 'user.name=test', '-c',
                       'user.email=test@example.org', 'commit', '-qm', 'all']):
            subprocess.run(['git', *words], cwd=repository, check=True,
                           capture_output=True)
        text = self.read('local.conf')
        self.write('local.conf', re.sub(
            r'(enable_plugin \S+) \S+', r'\1 %s' % repository, text))

    def program(self, name: str, text: str) -> None:
        """Create a program, which is logged with its arguments."""
        path = self.folder / 'bin' / name
        path.write_text(textwrap.dedent('''\
            #!/bin/bash
            echo "%s $*" >> "$MACHINE/log"
            %s
            ''') % (name, text))
        path.chmod(0o755)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run stack.sh, unstack.sh or clean.sh, without ``.sh``."""
        environment = {
            'PATH': '%s:%s' % (self.folder / 'bin', os.environ['PATH']),
            'HOME': str(self.folder),
            'USER': 'stack', 'MACHINE': str(self.folder),
            'TMPDIR': str(self.folder / 'tmp')}
        if self._devstack:
            environment['DEVSTACK_DIR'] = self._devstack
        (self.folder / 'log').write_text('')
        bash = shutil.which('bash')
        assert bash is not None
        return subprocess.run(
            [bash, str(_RUN), script], env=environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, errors='replace')

    def write(self, name: str, *lines: str) -> None:
        """Write lines to a file of the machine."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(''.join(line + '\n' for line in lines))

    def read(self, name: str) -> str:
        """Return the text of a file of the machine, empty without it."""
        path = self.folder / name
        return path.read_text() if path.exists() else ''

    @property
    def log(self) -> list[str]:
        """What the last script did as root, one line per command."""
        return self.read('log').splitlines()

    def options(self, name: str, section: str) -> dict[str, str]:
        """Return a section of an INI file, empty if it does not exist."""
        parser = configparser.RawConfigParser(strict=False,
                                              default_section='')
        parser.optionxform = str  # type: ignore[assignment]
        parser.read_string(re.sub(r'\A[^[]*', '', self.read(name)))
        return dict(parser[section]) if section in parser else {}

    def variable(self, name: str) -> str | None:
        """Return a variable's value at the end of the last script."""
        found = re.search(r'^declare -\S+ %s=(.*)$' % name,
                          self.read('variables'), re.MULTILINE)
        return ' '.join(shlex.split(found[1])) if found else None
