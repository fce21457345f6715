# SPDX-License-Identifier: Apache-2.0
"""What runs, and whether it is well."""

from tests.lab import errors
from tests.lab import proc


def _node_line(node):
    if not node.machine.powered():
        return 'off', True
    if not node.shell.answers():
        return 'ON, BUT DOES NOT ANSWER', False
    words, well = ['on'], True
    for name in ('cinder-volume', 'tgtd', 'iscsid'):
        if node.enabled(name):
            runs = node.try_run('lab-service status ' + name)[0] == 0
            ready = name != 'cinder-volume' or node.driver_ready()
            words.append(name if runs and ready else
                         name + (' STARTING' if runs else ' DEAD'))
            well = well and runs and ready
    for at, seconds in node.gaps():
        words.append('STOOD STILL for %.1f s at %.0f' % (seconds, at))
        well = False
    return ', '.join(words), well


def show(lab):
    """Print a line for everything; return 1 unless all is well."""
    well = True
    names = lab.control.services if not lab.settings.bare else ()
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
