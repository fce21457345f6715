# SPDX-License-Identifier: Apache-2.0
"""The driver's commands, run on nodes."""


def line(name, *arguments):
    """Return the line for the shell of a node that runs a command.

    :param name: of its module
    """
    return ('. /lab/node.env; PYTHONPATH=$CHECKOUT PYTHONWARNINGS=ignore '
            'PYTHONDONTWRITEBYTECODE=1 PATH=$VENV/bin:$PATH python -m '
            'dmclone_driver.cmd.%s --config-file /etc/cinder/cinder.conf '
            '%s' % (name, ' '.join(arguments)))


def run(node, name, *arguments, timeout=120):
    """Run one of the driver's commands on a node.

    :param name: of its module
    :param timeout: in seconds
    :returns: (exit code, stdout, stderr)
    """
    return node.try_run(line(name, *arguments), timeout=timeout)
