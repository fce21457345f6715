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


def installed(name, *arguments):
    """Return the line that runs a command of the installed Debian package."""
    program = 'dmclone' if name == 'dmclone' else \
        'dmclone-' + name.replace('_', '-')
    return ' '.join([program, '--config-file', '/etc/cinder/cinder.conf',
                     *arguments])


def run(node, name, *arguments, timeout=120):
    """Run one of the driver's commands on a node.

    :param name: of its module
    :param timeout: in seconds
    :returns: (exit code, stdout, stderr)
    """
    made = installed if node.settings.package else line
    return node.try_run(made(name, *arguments), timeout=timeout)
