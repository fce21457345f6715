# SPDX-License-Identifier: Apache-2.0
"""The command line of the benchmarks; each is a module of this package."""

import argparse
import importlib

_MODULES = {'move': 'lab.bench.move',
            'hydration': 'lab.bench.hydration',
            'scale': 'lab.bench.scale',
            'live-migration': 'lab.bench.live_migration',
            'metadata': 'lab.bench.metadata',
            'metadata-fast': 'lab.bench.metadata_fast',
            'barriers': 'lab.bench.barriers',
            'ramdisk': 'lab.bench.ramdisk'}


def main():
    parser = argparse.ArgumentParser(
        prog='tools/bench', description='Measure in the laboratory that is '
        'up. Compare ratios only: the seconds are those of virtual nodes.')
    parser.add_argument('what', choices=list(_MODULES))
    parser.add_argument('--rounds', type=int, default=4)
    arguments = parser.parse_args()
    bench = importlib.import_module(_MODULES[arguments.what]).Bench()
    for number in range(arguments.rounds):
        print('round %d' % (number + 1), flush=True)
        bench.round()
    bench.report()


if __name__ == '__main__':
    main()
