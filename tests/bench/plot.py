# SPDX-License-Identifier: Apache-2.0
"""Draw what a benchmark has kept: tox -e plots -- RESULTS.json FIGURE.

Makes FIGURE.png and FIGURE.svg: a bar for the median of each ratio, a line
from the least to the most. Measurements whose name, "randread, what" or
"read, what: microseconds", begins or ends with other words get an axis each.
"""

import json
import sys

from matplotlib import pyplot


def _parts(name):
    """Return (what an axis shows, what a bar of it is)."""
    way, _, rest = name.partition(', ')
    what, _, unit = rest.partition(': ')
    return '%s, %s' % (way, unit) if unit else way, what


def _axis(axis, rows, title):
    names = [_parts(row['name'])[1] for row in rows][::-1]
    median, least, most = zip(*[row['ratio'] for row in rows[::-1]])
    axis.barh(names, median, color='#4c72b0', xerr=(
        [one - low for one, low in zip(median, least)],
        [high - one for one, high in zip(median, most)]),
        error_kw={'elinewidth': 1, 'capsize': 2})
    axis.axvline(1, color='black', linewidth=0.5)
    axis.set_title(title)
    axis.set_xlabel('ratio to the first of them, in the same round')
    axis.tick_params(axis='y', labelsize=8)


def draw(rows):
    """Return the figure of a benchmark's rows."""
    rows = [row for row in rows if row['ratio']]
    groups = {}
    for row in rows:
        groups.setdefault(_parts(row['name'])[0], []).append(row)
    figure, axes = pyplot.subplots(
        len(groups), squeeze=False, layout='constrained',
        figsize=(9, 1 + sum(0.28 * len(group) + 0.8
                            for group in groups.values())),
        height_ratios=[len(group) + 2 for group in groups.values()])
    for axis, (title, group) in zip(axes[:, 0], groups.items()):
        _axis(axis, group, title)
    return figure


def main():
    source, target = sys.argv[1:]
    # Text that stays text, and files that stay the same.
    pyplot.rcParams.update({'svg.fonttype': 'none', 'svg.hashsalt': 'dmclone'})
    with open(source) as stream:
        figure = draw(json.load(stream))
    for kind in ('png', 'svg'):
        figure.savefig('%s.%s' % (target, kind), dpi=110,
                       metadata={'Date': None} if kind == 'svg' else None)


if __name__ == '__main__':
    main()
