# SPDX-License-Identifier: Apache-2.0
"""The demo's command line: finds or starts a laboratory for the story.

Runs with nothing but the system's own Python; the story itself runs in the
laboratory's environment and network.
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
    """The programs that the demo runs, one after the other.

    Each has a session of its own, so that Ctrl-C reaches this program alone.
    It tells the one that runs, waits for it, and cleans up.
    """

    def __init__(self):
        self._running = None
        self._interrupted = False

    def listen(self):
        """Take signals from now on."""
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

        :param stop: the signal that asks it to end
        :raises KeyboardInterrupt: if this program was asked to end
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
    """Wait for what a program had started itself to end, too."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)


def _must_be_well():
    """Raise unless the laboratory that is up can be used."""
    done = subprocess.run([*_LAB, 'status'], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise errors.LabError('a laboratory is up, but it is not well; '
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
    """Bring a laboratory up for the story, and down again."""
    up = ['up', '--nova'] if live else ['up']
    errors.say('no laboratory is up: this is `tools/lab %s`' % ' '.join(up))
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
    # The setup takes minutes the first time; somebody may bring a laboratory
    # up meanwhile, which is then not ours to take down.
    if not network.exists() and programs.run([*_LAB, 'setup']):
        return 1
    if not network.exists():
        return _in_own_lab(programs, live, keep)
    errors.say('using the laboratory that is up')
    _must_be_well()
    return _tell_story(programs, live, [])


def main():
    parser = argparse.ArgumentParser(
        prog='tools/demo', description='A volume moves from one node to '
        'another while it is used, on real kernels and with the real Cinder. '
        'Takes a few minutes, the first set-up some more. Needs root.',
        epilog='A laboratory that is up is used, and left up.')
    parser.add_argument('--live-migration', action='store_true',
                        help='tell the story of a live migration instead')
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
    errors.say('the demo has ended %s' % ('well' if not code else
                                          'WITH AN ERROR, see above'))
    return code


if __name__ == '__main__':
    sys.exit(main())
