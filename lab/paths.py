# SPDX-License-Identifier: Apache-2.0
"""Where things lie: the checkout, the cache of set-up, the state of a run."""

import os
import pathlib
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]
TEMPLATES = pathlib.Path(__file__).resolve().parent / 'templates'
CACHE = pathlib.Path(os.environ.get('DMCLONE_LAB_CACHE')
                     or '/var/cache/dmclone-lab').absolute()
STATE = pathlib.Path(os.environ.get('DMCLONE_LAB_STATE')
                     or '/var/lib/dmclone-lab').absolute()

VENV = CACHE / 'venv'
RUN = STATE / 'run'
LOGS = STATE / 'logs'
NODES = STATE / 'nodes'
SSH_KEY = CACHE / 'ssh-key'


def base_interpreter():
    """The prefix of the interpreter that the virtual environment uses.

    It is /usr with Debian's own Python, which the nodes have too; any other
    prefix (pyenv, say) has to be shown to the nodes.
    """
    config = VENV / 'pyvenv.cfg'
    for line in config.read_text().splitlines() if config.exists() else ():
        key, _, value = line.partition('=')
        if key.strip() == 'home':
            return pathlib.Path(value.strip()).parent
    return pathlib.Path(sys.base_prefix)


def tail(path, lines=15):
    """The last lines of a log, for error messages."""
    try:
        with open(path, 'rb') as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 16384))
            text = log.read().decode(errors='replace')
    except OSError as e:
        return '(%s)' % e
    last = text.splitlines()[-lines:]
    return '\n'.join('  | ' + line[:400] for line in last)
