# SPDX-License-Identifier: Apache-2.0
"""Python calls inside the laboratory's network namespace.

A namespace belongs to a thread: the calls run in a separate thread, and the
rest of the program stays outside.
"""

import ctypes
import http.client
import os
import socket
import threading

from lab import errors
from lab import network

_NEWNET = 0x40000000


def enter():
    """Move the calling thread into the namespace permanently."""
    with open('/run/netns/' + network.NAMESPACE) as f:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(f.fileno(), _NEWNET):
            raise errors.LabError('cannot enter the network namespace: ' +
                                  os.strerror(ctypes.get_errno()))


def call(fn, *args):
    """Call fn in the namespace and return what it returns."""
    result = []

    def work():
        try:
            enter()
            result.append((fn(*args), None))
        except Exception as e:
            result.append((None, e))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    value, error = result[0]
    if error:
        raise error
    return value


def _connects(port):
    with socket.create_connection((network.CONTROL, port), timeout=2):
        return True


def listens(port):
    """Return whether a port of the control plane accepts connections."""
    try:
        return call(_connects, port)
    except OSError:
        return False


def _status(port, path):
    connection = http.client.HTTPConnection(network.CONTROL, port, timeout=10)
    try:
        connection.request('GET', path)
        return connection.getresponse().status
    finally:
        connection.close()


def answers(port, path='/'):
    """Return whether an API answers with a status below 500."""
    try:
        return call(_status, port, path) < 500
    except (OSError, http.client.HTTPException):
        return False
