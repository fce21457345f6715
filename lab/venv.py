# SPDX-License-Identifier: Apache-2.0
"""Virtual environments: of OpenStack for host and nodes, of tests' tools.

The first is built in a folder with its key in the name, and `venv` is a link
to it, since an environment cannot be moved and may be in use while a newer
one is built.
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
#: Runs tests outside of the laboratory, and counts those of all sets.
TOOLS = paths.CACHE / 'tox-venv'
#: Runs Tempest against the laboratory.
TEMPEST = paths.CACHE / 'tempest-venv'
_TEMPEST = _HERE / 'tempest/requirements.txt'
_TOOLS = ['tox>=4.28', 'stestr>=4.1', 'python-subunit>=1.4', 'testtools>=2.4']


def constraints():
    """Return the list of the versions of the OpenStack that is wanted.

    It is the newest unless DMCLONE_LAB_RELEASE names an older one.
    """
    release = os.environ.get('DMCLONE_LAB_RELEASE')
    if not release:
        return _HERE / 'constraints.txt'
    path = _HERE / ('constraints-%s.txt' % release)
    if not path.exists():
        raise errors.LabError('DMCLONE_LAB_RELEASE is %s, but there is no %s'
                              % (release, path))
    return path


def interpreter():
    """Return the base interpreter, not that of an active environment."""
    name = 'python%d.%d' % sys.version_info[:2]
    path = pathlib.Path(sys.base_prefix) / 'bin' / name
    return path if path.exists() else pathlib.Path(sys.executable)


def _key(*files):
    parts = [str(interpreter()), sys.version, *(f.read_text() for f in files)]
    return hashlib.sha256('\0'.join(parts).encode()).hexdigest()[:12]


def folder():
    """Return the folder of the environment that the checkout needs."""
    return paths.CACHE / ('venv-' + _key(_REQUIREMENTS, constraints()))


def _make(target, *wanted):
    """Build an environment with some packages of pip."""
    shutil.rmtree(target, ignore_errors=True)
    command.run([interpreter(), '-m', 'venv', target], timeout=120)
    env = {key: value for key, value in os.environ.items()
           if not key.startswith('PYTHON')}
    # Prefer wheels: a new machine has no compiler.
    command.run([target / 'bin/pip', 'install', '--no-input',
                 '--disable-pip-version-check', '--prefer-binary', *wanted],
                timeout=1800, env=env)


def tools_ready():
    """Return whether the environment of tests' tools is current."""
    stamp = TOOLS / '.wanted'
    return stamp.exists() and stamp.read_text().split() == _TOOLS


def ensure_tools():
    """Build the environment of tests' tools unless it is current."""
    if not tools_ready():
        errors.say('set-up: installing tox')
        _make(TOOLS, *_TOOLS)
        (TOOLS / '.wanted').write_text(' '.join(_TOOLS) + '\n')


def ensure_tempest():
    """Build the environment of Tempest unless it is current.

    It is the same for all releases: Tempest has no branches.
    """
    newest = _HERE / 'constraints.txt'
    stamp, key = TEMPEST / '.key', _key(_TEMPEST, newest)
    if not (stamp.exists() and stamp.read_text() == key):
        errors.say('set-up: installing Tempest')
        _make(TEMPEST, '-r', _TEMPEST, '-c', newest)
        stamp.write_text(key)


def ensure():
    """Build the environment of OpenStack unless it exists."""
    target = folder()
    done = target / 'lab-complete'
    if not done.exists():
        errors.say('set-up: building the environment, about 90 s')
        _make(target, '-r', _REQUIREMENTS, '-c', constraints())
        done.touch()
        _prune(target)
        errors.say('set-up: the environment is ready')
    _link(target)


def _prune(newest):
    """Remove all but the last old environments, which may be in use."""
    old = sorted((p for p in paths.CACHE.glob('venv-*') if p != newest),
                 key=lambda p: p.stat().st_mtime)
    for folder_of_old in old[:-2]:
        shutil.rmtree(folder_of_old)


def _link(target):
    """Point the link `venv` to the environment."""
    if paths.VENV.is_symlink() and paths.VENV.resolve() == target.resolve():
        return
    if paths.VENV.is_dir() and not paths.VENV.is_symlink():
        paths.VENV.rename(paths.CACHE / 'venv-of-old')
    temporary = paths.CACHE / 'venv.new'
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.name)
    temporary.rename(paths.VENV)
