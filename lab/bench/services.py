# SPDX-License-Identifier: Apache-2.0
"""cinder-volume with other options, and the copies that it lets run."""

import contextlib

from lab.common import commands
from lab import errors


@contextlib.contextmanager
def configured(nodes, options):
    """Have nodes run with other options of the backend meanwhile.

    :param options: {option: value}
    """
    def use(changes):
        for node in nodes:
            node.configure(changes)
            node.restart('cinder-volume')
        for node in nodes:
            node.wait_ready()
    try:
        use({'dmclone': options})
        yield
    finally:
        use({})


def allow(node, copies=None, bandwidth=None):
    """Change how many copies to a node run at a time, and how fast.

    What is not given is as configured, whatever it was before. With 0 copies
    those of volumes that are attached later do not begin. Those that run are
    stopped by the watcher's next look, within some seconds.

    :param bandwidth: of all copies that arrive, such as ``4MiB``
    :raises LabError: if the node refuses
    """
    code, out, err = commands.run(
        node, 'dmclone', 'pace', node.name, '--configured',
        *([] if copies is None else ['--copies %d' % copies]),
        *(['--bandwidth-in', bandwidth] if bandwidth else []))
    if code:
        raise errors.LabError('%s does not change its pace: %s%s' % (
            node.name, out, err))
