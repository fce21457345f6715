# SPDX-License-Identifier: Apache-2.0
"""Set-up of a new Debian machine: packages, environment, kernels, image.

Each step has a key, the hash of its inputs, and does nothing if the cache has
its result with that key.
"""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil

from lab import apt
from lab import errors
from lab import guest
from lab import image
from lab import kernel
from lab import paths
from lab import seed
from lab import venv

PACKAGES = ['mmdebstrap', 'patchelf', 'kmod', 'e2fsprogs', 'openssh-client',
            'iproute2', 'util-linux', 'mariadb-server', 'mariadb-client',
            'rabbitmq-server', 'python3-venv', 'cpio']


def _stamp(name):
    return paths.CACHE / 'stamps' / name


def _key(parts):
    return hashlib.sha256('\0'.join(parts).encode()).hexdigest()


def step(name, parts, target, build):
    """Build the target with build(temporary) unless its key is unchanged."""
    stamp, key = _stamp(name), _key(parts)
    if target.exists() and stamp.exists() and stamp.read_text() == key:
        return
    errors.say('set-up: building %s' % name)
    temporary = target.with_name(target.name + '.new')
    _remove(temporary)
    stamp.unlink(missing_ok=True)
    build(temporary)
    _remove(target)
    os.rename(temporary, target)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(key)
    errors.say('set-up: %s is ready' % name)


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _kernels_and_image():
    for kind in kernel.KINDS:
        folder = kernel.folder(kind)
        step(folder.name, kernel.PACKAGES, folder,
             lambda target, kind=kind: kernel.build(kind, target))
    step('image', image.inputs(), image.IMAGE, image.build)


def _guest():
    step('guest', guest.inputs(), guest.FOLDER, guest.build)


def packages(wanted):
    """Install the missing ones of some Debian packages."""
    absent = apt.missing(wanted)
    if absent:
        errors.say('set-up: installing ' + ' '.join(absent))
        apt.install(absent)


def _packages_for_tools():
    """Return the packages needed to build the tests' environments."""
    wanted = []
    if not shutil.which('git'):
        wanted += ['git', 'ca-certificates']
    if not shutil.which('gcc'):
        wanted += ['gcc', 'libc6-dev']
    if not importlib.util.find_spec('ensurepip'):
        wanted += ['python3-venv']
    # Headers for the few packages without a wheel. An interpreter that is
    # not the distribution's includes them.
    if str(venv.interpreter()).startswith(('/usr/bin/', '/bin/')):
        wanted += ['python3-dev']
    return wanted


def tools():
    """Install the programs that run and count tests.

    Needs root only if something is missing.
    """
    wanted = _packages_for_tools()
    if not venv.tools_ready() or (wanted and apt.missing(wanted)):
        with _exclusively():
            if wanted:
                packages(wanted)
            venv.ensure_tools()


def tempest():
    """Install Tempest, in an environment of its own."""
    with _exclusively():
        venv.ensure_tempest()


@contextlib.contextmanager
def _exclusively():
    """Allow one set-up at a time."""
    paths.CACHE.mkdir(parents=True, exist_ok=True)
    with open(paths.CACHE / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(bare=False, more=(), then=None):
    """Set up everything, or (bare) only nodes without OpenStack.

    :param more: additional Debian packages
    :param then: a function that makes what not every laboratory needs
    """
    if os.geteuid():
        raise errors.LabError('the laboratory has to be run as root')
    with _exclusively():
        packages([*PACKAGES, *more])
        with concurrent.futures.ThreadPoolExecutor() as pool:
            jobs = [pool.submit(_kernels_and_image)]
            if not bare:
                jobs.append(pool.submit(venv.ensure))
                jobs.append(pool.submit(_guest))
            for job in jobs:
                job.result()
        if not bare:
            step('seed', seed.inputs(), seed.TARBALL, seed.build)
        if then:
            then()
