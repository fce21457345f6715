# SPDX-License-Identifier: Apache-2.0
"""The demo's command line: uses or starts a laboratory, and runs the demo.

Needs only the system's Python; the demo itself runs in the laboratory's
environment and network.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time

from lab import errors
from lab import lab
from lab import network
from lab import paths

_LAB = [sys.executable, '-P', '-m', 'lab']


class Programs:
    """Runs programs one after the other.

    Each program has its own session, so that Ctrl-C reaches only this process.
    This process then signals the program, waits for it, and cleans up.
    """

    def __init__(self):
        self._running = None
        self._interrupted = False

    def listen(self):
        """Install the signal handlers."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number, frame):
        self._interrupted = True
        self._tell()

    def _tell(self):
        if self._running is None:
            return
        process, number = self._running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def run(self, argv, stop=signal.SIGTERM, **kwargs):
        """Run a program and return its exit code.

        :param stop: the signal that terminates the program
        :raises KeyboardInterrupt: if this process received a signal
        """
        process = subprocess.Popen(argv, start_new_session=True,
                                   stdin=subprocess.DEVNULL, **kwargs)
        self._running = (process, stop)
        if self._interrupted:
            self._tell()
        code = process.wait()
        self._running = None
        if self._interrupted:
            _wait_gone(process.pid)
            raise KeyboardInterrupt
        return code


def _wait_gone(group, timeout=5):
    """Wait until all processes of a process group have ended."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)


def _check_status():
    """Refuse a laboratory that is up but not healthy."""
    done = subprocess.run([*_LAB, 'status'], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise errors.LabError('a laboratory is up, but not healthy; '
                              '`tools/lab down` takes it down:\n%s'
                              % done.stdout.rstrip())


def _tell_story(programs, live, arguments):
    env = dict(lab.Lab.load().environment(), PYTHONUNBUFFERED='1')
    return programs.run(
        [*network.wrapper(), str(paths.VENV / 'bin/python'),
         '-P', '-m', 'lab.demo.%s' % ('live_story' if live else 'story'),
         *arguments],
        stop=signal.SIGINT, env=env)


def _in_own_lab(programs, live, keep):
    """Bring a laboratory up for the demo, and take it down at the end."""
    up = ['up', '--nova'] if live else ['up']
    errors.say('no laboratory is up: running `tools/lab %s`' % ' '.join(up))
    try:
        if programs.run([*_LAB, *up]):
            return 1
        return _tell_story(programs, live, [] if keep else ['--no-tidy'])
    finally:
        if keep:
            errors.say('the laboratory stays up until `tools/lab down`')
        else:
            errors.say('taking the laboratory down')
            subprocess.run([*_LAB, 'down'], start_new_session=True)


def _run(programs, live, keep):
    # The first set-up takes minutes. A laboratory that another user brings up
    # meanwhile is not taken down at the end.
    if not network.exists() and programs.run([*_LAB, 'setup']):
        return 1
    if not network.exists():
        return _in_own_lab(programs, live, keep)
    errors.say('using the laboratory that is up')
    _check_status()
    return _tell_story(programs, live, [])


def main():
    parser = argparse.ArgumentParser(
        prog='tools/demo', description='Move a volume from one node to '
        'another while it is in use, with real kernels and Cinder. '
        'Takes a few minutes, the first set-up some more. Needs root.',
        epilog='If a laboratory is up it is used, and left up.')
    parser.add_argument('--live-migration', action='store_true',
                        help='demonstrate a live migration instead')
    parser.add_argument('--keep', action='store_true',
                        help='leave the laboratory up at the end')
    args = parser.parse_args()
    if os.geteuid():
        parser.error('the laboratory has to be run as root')
    programs = Programs()
    programs.listen()
    try:
        code = _run(programs, args.live_migration, args.keep)
    except errors.LabError as e:
        print('demo: %s' % e, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('demo: interrupted', file=sys.stderr)
        return 130
    errors.say('the demo has %s' % ('succeeded' if not code else
                                    'FAILED, see above'))
    return code


if __name__ == '__main__':
    sys.exit(main())
