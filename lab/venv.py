# SPDX-License-Identifier: Apache-2.0
"""Virtual environments: of OpenStack for host and nodes, of tests' tools.

The first is built in a folder named after its key and linked to as `venv`,
since an environment cannot be moved and may be in use while a newer one is
built.
"""

import hashlib
import os
import pathlib
import shutil
import sys

from lab import command
from lab import errors
from lab import paths

_HERE = pathlib.Path(__file__).parent
_REQUIREMENTS = _HERE / 'requirements.txt'
_CONSTRAINTS = _HERE / 'constraints.txt'
#: What runs tests outside of the laboratory, and counts them everywhere.
TOOLS = paths.CACHE / 'tox-venv'
_TOOLS = ['tox>=4.28', 'stestr>=4.1', 'python-subunit>=1.4', 'testtools>=2.4']


def interpreter():
    """The interpreter itself, not an environment that may be active."""
    name = 'python%d.%d' % sys.version_info[:2]
    path = pathlib.Path(sys.base_prefix) / 'bin' / name
    return path if path.exists() else pathlib.Path(sys.executable)


def _key():
    parts = [str(interpreter()), sys.version, _REQUIREMENTS.read_text(),
             _CONSTRAINTS.read_text()]
    return hashlib.sha256('\0'.join(parts).encode()).hexdigest()[:12]


def folder():
    """The folder of the environment that the checkout asks for."""
    return paths.CACHE / ('venv-' + _key())


def _make(target, *wanted):
    """Build an environment with what pip is told to install."""
    shutil.rmtree(target, ignore_errors=True)
    command.run([interpreter(), '-m', 'venv', target], timeout=120)
    env = {key: value for key, value in os.environ.items()
           if not key.startswith('PYTHON')}
    # Nothing is compiled here: a fresh machine has no compiler.
    command.run([target / 'bin/pip', 'install', '--no-input',
                 '--disable-pip-version-check', '--prefer-binary', *wanted],
                timeout=1800, env=env)


def tools_ready():
    """Whether the environment of tests' tools is there."""
    stamp = TOOLS / '.wanted'
    return stamp.exists() and stamp.read_text().split() == _TOOLS


def ensure_tools():
    """Build the environment of tests' tools unless it is there."""
    if not tools_ready():
        errors.say('set-up: installing tox')
        _make(TOOLS, *_TOOLS)
        (TOOLS / '.wanted').write_text(' '.join(_TOOLS) + '\n')


def ensure():
    """Build the environment of OpenStack unless it is there."""
    target = folder()
    done = target / 'lab-complete'
    if not done.exists():
        errors.say('set-up: building the environment, about 90 s')
        _make(target, '-r', _REQUIREMENTS, '-c', _CONSTRAINTS)
        done.touch()
        _prune(target)
        errors.say('set-up: the environment is ready')
    _link(target)


def _prune(newest):
    """Remove old environments, but the last ones: they may be in use."""
    old = sorted((p for p in paths.CACHE.glob('venv-*') if p != newest),
                 key=lambda p: p.stat().st_mtime)
    for folder_of_old in old[:-2]:
        shutil.rmtree(folder_of_old)


def _link(target):
    """Let the plain name lead to the environment."""
    if paths.VENV.is_symlink() and paths.VENV.resolve() == target.resolve():
        return
    if paths.VENV.is_dir() and not paths.VENV.is_symlink():
        paths.VENV.rename(paths.CACHE / 'venv-of-old')
    temporary = paths.CACHE / 'venv.new'
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.name)
    temporary.rename(paths.VENV)
