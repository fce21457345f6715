# SPDX-License-Identifier: Apache-2.0
"""Plot results of a benchmark: tox -e plots -- RESULTS.json... FIGURE.

Writes FIGURE.png and FIGURE.svg, with a bar per median of a ratio and a line
from the least to the most, and FIGURE.csv, a table of the same; FIGURE-2.csv,
if a part of the results has neither rows nor columns in common with others.
"""

import csv
import json
import sys

from matplotlib import pyplot

from lab.bench import ratios


def _axis(axis, rows, title):
    names = [ratios.parts(row['name'])[1] for row in rows][::-1]
    median, least, most = zip(*[row['ratio'] for row in rows[::-1]])
    axis.barh(names, median, color='#4c72b0', xerr=(
        [one - low for one, low in zip(median, least)],
        [high - one for one, high in zip(median, most)]),
        error_kw={'elinewidth': 1, 'capsize': 2})
    axis.axvline(1, color='black', linewidth=0.5)
    axis.set_title(title)
    # The page of the figure says what the bases are: there may be several.
    axis.set_xlabel('ratio, in the same round')
    axis.tick_params(axis='y', labelsize=8)


def draw(rows):
    """Return the figure of a benchmark's rows."""
    rows = [row for row in rows if row['ratio']]
    groups = {}
    for row in rows:
        groups.setdefault(ratios.parts(row['name'])[0], []).append(row)
    figure, axes = pyplot.subplots(
        len(groups), squeeze=False, layout='constrained',
        figsize=(9, 1 + sum(0.28 * len(group) + 0.8
                            for group in groups.values())),
        height_ratios=[len(group) + 2 for group in groups.values()])
    for axis, (title, group) in zip(axes[:, 0], groups.items()):
        _axis(axis, group, title)
    return figure


def main():
    *sources, target = sys.argv[1:]
    # Keep text as text, and make the files reproducible.
    pyplot.rcParams.update({'svg.fonttype': 'none', 'svg.hashsalt': 'dmclone'})
    rows = []
    for source in sources:
        with open(source) as stream:
            rows += json.load(stream)
    for number, part in enumerate(ratios.apart(rows), 1):
        name = target + ('-%d' % number if number > 1 else '') + '.csv'
        with open(name, 'w') as stream:
            csv.writer(stream, lineterminator='\n').writerows(
                ratios.table(part))
    figure = draw(rows)
    for kind in ('png', 'svg'):
        figure.savefig('%s.%s' % (target, kind), dpi=110,
                       metadata={'Date': None} if kind == 'svg' else None)


if __name__ == '__main__':
    main()
