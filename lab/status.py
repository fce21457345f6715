# SPDX-License-Identifier: Apache-2.0
"""Print the services and nodes, and whether they are healthy."""

from lab import errors
from lab import proc


def _services(node):
    """Yield (text, whether it is a failure) per enabled service."""
    for name in ('cinder-volume', 'cinder-backup', 'tgtd', 'iscsid',
                 'libvirtd', 'nova-compute'):
        if not node.enabled(name):
            continue
        if node.try_run('lab-service status ' + name)[0]:
            yield name + ' DEAD', True
        elif name in node.READY and not node.READY[name](node):
            yield name + ' STARTING', True
        else:
            yield name, False


def _node_line(node):
    if not node.machine.powered():
        words = [('off', False)]
    elif not node.shell.answers():
        words = [('ON, BUT DOES NOT ANSWER', True)]
    else:
        words = [('on', False), *_services(node)]
    words += [(trouble, True) for trouble in node.troubles()]
    return (', '.join(word for word, _ in words),
            not any(bad for _, bad in words))


def show(lab):
    """Print one line per service and node; return 1 for any failure."""
    well = True
    names = (() if lab.settings.bare else
             (*lab.first_services(), *lab.control_services()))
    for name in names:
        try:
            runs = proc.alive(name) and lab.control.services[name].ready()
        except errors.LabError:
            runs = False
        print('%-17s%s' % (name, 'runs' if runs else 'DOES NOT RUN'))
        well = well and runs
    for name, node in lab.nodes.items():
        text, node_well = _node_line(node)
        print('%-17s%s' % (name, text))
        well = well and node_well
    return 0 if well else 1
