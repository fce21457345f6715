# SPDX-License-Identifier: Apache-2.0
"""Read the ticks of a node, to find hangs and crashes.

A node writes the time every second, and `boot` with the first one. The
laboratory writes `off` when it cuts the power.
"""

MAX_GAP = 5.0
BOOT, OFF = 'boot', 'off'


def _parse(text):
    for line in text.splitlines():
        word, _, number = line.strip().rpartition(' ')
        try:
            yield word, float(number)
        except ValueError:
            continue        # incomplete, because of a power cut


def troubles(text, now, powered):
    """Return the hangs and crashes of the node that wrote these ticks.

    :param now: the time at which the text was read
    :param powered: whether the node is on at that time
    :return: list of phrases that follow the node's name
    """
    found, last = [], None
    for word, at in _parse(text):
        if word == BOOT and last is not None:
            found.append('died by itself at %.0f' % last)
        elif last is not None and at - last > MAX_GAP and word != OFF:
            found.append('stood still for %.1f s at %.0f' % (at - last, last))
        last = None if word == OFF else at
    if last is not None and not powered:
        found.append('died by itself at %.0f' % last)
    elif last is not None and now - last > MAX_GAP:
        found.append('stands still since %.0f, for %.1f s' % (
            last, now - last))
    return found
