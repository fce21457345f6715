# SPDX-License-Identifier: Apache-2.0
"""Measurements of several interleaved rounds, as ratios to a base.

A name is "way, what" or "way, what: unit", such as "randread, clone, zram".
"""

import json
import statistics

#: Columns of values that fit into a page.
WIDE = 6


class Ratios:
    """Measurements by name, in the order of their first values.

    A value is divided by the base's value of the same round.
    """

    def __init__(self):
        self.values = {}

    def note(self, name, value):
        """Keep and print a measurement."""
        self.values.setdefault(name, []).append(value)
        print('  %-66s %10.2f' % (name, value), flush=True)

    def of(self, name, base):
        """Return (median, least, most) of the ratios to a base."""
        ratios = [one / other for one, other in zip(self.values[name],
                                                    self.values[base])]
        return statistics.median(ratios), min(ratios), max(ratios)

    def report(self, base_of):
        """Print one line per name.

        :param base_of: function of a name that returns its base, or None
        """
        print('\n%-66s %10s %20s' % ('', 'median', 'ratio (least, most)'))
        for name, values in self.values.items():
            base = base_of(name)
            ratio = '%.2f (%.2f, %.2f)' % self.of(name, base) if base else ''
            print('%-66s %10.2f %20s' % (name, statistics.median(values),
                                         ratio))

    def save(self, path, base_of, wanted=lambda name: True):
        """Write the results for plot.py, and print where they are.

        :param wanted: whether a name is for this file
        """
        rows = [{'name': name, 'values': values, 'ratio': self.of(
            name, base_of(name)) if base_of(name) else None}
            for name, values in self.values.items() if wanted(name)]
        with open(path, 'w') as stream:
            json.dump(rows, stream, indent=1)
        print('saved in %s: see `tox -e plots`' % path)


def judge(what, value, limit, least=False):
    """Print whether a limit is kept.

    :param least: whether the value has to be at least the limit
    """
    kept = value >= limit if least else value <= limit
    print('%-66s %10.2f, at %s %.2f: %s' % (
        what, value, 'least' if least else 'most', limit,
        'kept' if kept else 'NOT KEPT'))
    return kept


def parts(name):
    """Split a name into (way and unit, what)."""
    way, _, rest = name.partition(', ')
    what, _, unit = rest.partition(': ')
    return '%s, %s' % (way, unit) if unit else way, what


def _plain(value):
    return '%d' % value if isinstance(value, int) else '%.2f' % value


def apart(rows):
    """Return the rows in parts that have neither a way nor a "what" in common.

    One table of all would be empty for the most part.
    """
    found = []
    for row in rows:
        way, what = parts(row['name'])
        names = {('way', way), ('what', what)}
        joined = [part for part in found if part[0] & names]
        found = [part for part in found if part not in joined]
        found.append((names.union(*(part[0] for part in joined)), [
            *(each for part in joined for each in part[1]), row]))
    order = rows.index
    return sorted((sorted(part, key=order) for _names, part in found),
                  key=lambda part: order(part[0]))


def table(rows):
    """Return the lines of a table: one column per way, one row per "what".

    One that is too wide, and wider than long, is turned: a row per way.

    :param rows: as :meth:`Ratios.save` writes them
    """
    cells = {}
    for row in rows:
        way, what = parts(row['name'])
        cells.setdefault(what, {})[way] = (
            '%.2f (%.2f to %.2f)' % tuple(row['ratio']) if row['ratio'] else
            _plain(statistics.median(row['values'])))
    ways = list(dict.fromkeys(parts(row['name'])[0] for row in rows))
    lines = [['', *ways], *([what, *(found.get(way, '') for way in ways)]
                            for what, found in cells.items())]
    return (lines if len(ways) <= max(WIDE, len(cells)) else
            [list(line) for line in zip(*lines)])
