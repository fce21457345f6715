# SPDX-License-Identifier: Apache-2.0
"""Run a command with a time limit; a failure raises with its output."""

import subprocess

from lab import errors


def attempt(argv, timeout=60, input=None, env=None, cwd=None, label=None):
    """Run a command; return (exit code, stdout, stderr).

    :param label: its name in an error message, instead of the command line
    """
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(
            argv, input=input, capture_output=True, text=True,
            errors='replace', timeout=timeout, env=env, cwd=cwd,
            **({} if input is not None else {'stdin': subprocess.DEVNULL}))
    except subprocess.TimeoutExpired as e:
        said = ''.join((text or b'').decode(errors='replace')
                       for text in (e.stdout, e.stderr))
        raise errors.LabError('still running after %g s: %s\n%s' % (
            timeout, label or ' '.join(argv), said[-4000:]))
    except FileNotFoundError as e:
        raise errors.LabError('cannot run %s: %s' % (argv[0], e))
    return done.returncode, done.stdout, done.stderr


def run(argv, **kwargs):
    """Run a command; return its stdout.

    :raises LabError: if it fails
    """
    code, out, err = attempt(argv, **kwargs)
    if code:
        raise errors.LabError('exit code %d from: %s\n%s%s' % (
            code, ' '.join(str(a) for a in argv), out[-4000:], err[-4000:]))
    return out
