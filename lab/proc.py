# SPDX-License-Identifier: Apache-2.0
"""Background processes, recorded so that only they are killed.

Each is the leader of its own session. It writes its record itself before it
executes the program, so that a crash of the command leaves no unrecorded
process. The pid and the start time identify it.
"""

import contextlib
import json
import os
import signal
import subprocess
import time

from lab import errors
from lab import paths

_PF_STATE, _PF_SESSION, _PF_START = 0, 3, 19


def _stat(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rpartition(')')[2].split()
    except OSError:
        return None


def _record(name):
    return paths.RUN / (name + '.proc')


def start(name, argv, log, env=None, wrapper=(), cwd='/', pass_fds=(),
          cpu=None):
    """Start a program in the background; its record is NAME.proc."""
    if alive(name):
        raise errors.LabError('%s runs already' % name)
    paths.RUN.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    argv = [str(a) for a in (*wrapper, *argv)]

    def before_exec():
        os.setsid()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        me = os.getpid()
        begun = _stat(me)[_PF_START]
        temporary = '%s.%d' % (_record(name), me)
        with open(temporary, 'w') as f:
            json.dump({'pid': me, 'start': begun, 'argv': argv}, f)
        os.rename(temporary, _record(name))

    with open(log, 'ab') as out:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd,
            env=env, pass_fds=pass_fds, preexec_fn=before_exec)
    # It is not waited for: keep Popen from warning about that.
    child.returncode = 0
    return child.pid


def load(name):
    """Return the record of a process, None if there is none."""
    try:
        return json.loads(_record(name).read_text())
    except FileNotFoundError:
        return None


def names():
    """Return the names of all processes that have a record."""
    return sorted(p.name[:-5] for p in paths.RUN.glob('*.proc'))


def members(name):
    """Return the pids of a process's session, without zombies."""
    record = load(name)
    if not record:
        return []
    leader = _stat(record['pid'])
    if leader and leader[_PF_START] != record['start']:
        return []       # the pid belongs to another process now
    found = []
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        stat = _stat(int(entry))
        if (stat and stat[_PF_SESSION] == str(record['pid'])
                and stat[_PF_STATE] not in 'ZX'
                and int(stat[_PF_START]) >= int(record['start'])):
            found.append(int(entry))
    return found


def alive(name):
    """Return whether the recorded process itself runs."""
    record = load(name)
    stat = _stat(record['pid']) if record else None
    return bool(stat and stat[_PF_START] == record['start']
                and stat[_PF_STATE] not in 'ZX')


def _signal(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def send(name, number):
    """Send a signal to all processes of a session."""
    _signal(members(name), number)


def _reap(name):
    with contextlib.suppress(ChildProcessError):
        os.waitpid(load(name)['pid'], os.WNOHANG)


def _wait_gone(name, timeout):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        _reap(name)
        if not members(name):
            return True
        time.sleep(0.03)
    return False


def kill(name):
    """Kill all processes of a session with SIGKILL, and wait for the end."""
    if not load(name):
        return
    for _ in range(20):
        pids = members(name)
        _signal(pids, signal.SIGKILL)
        if _wait_gone(name, 1):
            _record(name).unlink(missing_ok=True)
            return
    raise errors.LabError('%s could not be killed, pids %s' % (name, pids))


def stop(name, timeout=20, number=signal.SIGTERM):
    """Terminate a process, and kill its session after the timeout."""
    record = load(name)
    if record and alive(name):
        _signal([record['pid']], number)
        end = time.monotonic() + timeout
        while alive(name) and time.monotonic() < end:
            _reap(name)
            time.sleep(0.03)
    kill(name)


def must_live(name, log):
    """Raise with the end of its log if a process has died."""
    if not alive(name):
        raise errors.LabError('%s died:\n%s' % (name, paths.tail(log)))
