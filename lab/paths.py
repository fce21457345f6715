# SPDX-License-Identifier: Apache-2.0
"""Paths: the checkout, the cache of set-up, the state of a laboratory."""

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
    """Return the prefix of the virtual environment's interpreter.

    It is /usr with Debian's Python, which the nodes have, too. Another prefix
    (such as pyenv's) has to be mounted on the nodes.
    """
    config = VENV / 'pyvenv.cfg'
    for line in config.read_text().splitlines() if config.exists() else ():
        key, _, value = line.partition('=')
        if key.strip() == 'home':
            return pathlib.Path(value.strip()).parent
    return pathlib.Path(sys.base_prefix)


def tail(path, lines=15):
    """Return the last lines of a log, for error messages."""
    try:
        with open(path, 'rb') as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 16384))
            text = log.read().decode(errors='replace')
    except OSError as e:
        return '(%s)' % e
    last = text.splitlines()[-lines:]
    return '\n'.join('  | ' + line[:400] for line in last)
