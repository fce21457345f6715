# SPDX-License-Identifier: Apache-2.0
"""The command line of the benchmarks; each is a module of this package."""

import argparse
import contextlib
import importlib
import time

_MODULES = {'move': 'lab.bench.move',
            'hydration': 'lab.bench.hydration',
            'neighbours': 'lab.bench.neighbours',
            'host-copies': 'lab.bench.host_copies',
            'copies': 'lab.bench.copies',
            'golden': 'lab.bench.golden',
            'scale': 'lab.bench.scale',
            'thin': 'lab.bench.thin',
            'thin-snapshots': 'lab.bench.thin_snapshots',
            'going-back': 'lab.bench.going_back',
            'snapshot-ways': 'lab.bench.snapshot_ways',
            'transfer': 'lab.bench.transfer',
            'live-migration': 'lab.bench.live_migration',
            'metadata': 'lab.bench.metadata',
            'metadata-fast': 'lab.bench.metadata_fast',
            'barriers': 'lab.bench.barriers',
            'ramdisk': 'lab.bench.ramdisk'}


def chunk_size(text):
    """Return the KiB of a chunk as LVM takes them.

    From 64 KiB to 1 GiB, in multiples of 64 KiB (validate_thin_pool_chunk_size
    of LVM, which would only fail when cinder-volume makes the pool).
    """
    found = int(text)
    if found % 64 or not 64 <= found <= 2 ** 20:
        raise ValueError
    return found


#: {what: {option: its arguments}}, which are those of its Bench.
_OPTIONS = {
    'hydration': {
        '--size': {'type': int, 'default': 2, 'metavar': 'GIB',
                   'help': 'of the volumes (2)'},
        '--seconds': {'type': int, 'default': 30, 'metavar': 'NUMBER',
                      'help': 'of each load without a copy (30)'},
        '--loads': {'type': int, 'nargs': '+', 'metavar': 'NUMBER',
                    'choices': range(1, 6), 'default': [1, 2, 3, 4, 5],
                    'help': 'which loads, by their places in the list in '
                    'lab/bench/hydration.py (1 2 3 4 5)'},
        '--minimum-rate': {'type': int, 'metavar': 'MIB',
                           'help': 'dmclone_hydration_min_rate of all nodes '
                           'meanwhile; their services are restarted for it '
                           "(the driver's default)"},
        '--window': {'type': int, 'metavar': 'KIB',
                     'help': 'dmclone_hydration_window, in the same way'}},
    'neighbours': {
        '--copies': {'type': int, 'default': 20, 'metavar': 'NUMBER',
                     'help': 'how many volumes are copied (20)'},
        '--at-once': {'type': int, 'metavar': 'NUMBER', 'help': 'how many of '
                      'them at a time (as configured)'},
        '--seconds': {'type': int, 'default': 30, 'metavar': 'NUMBER',
                      'help': 'of each load (30)'},
        '--bandwidths': {'nargs': '+', 'metavar': 'BANDWIDTH', 'default': [],
                         'help': 'of all copies together, such as 4MiB; each '
                         'is measured, besides the configured one'}},
    'host-copies': {
        '--seconds': {'type': int, 'default': 30, 'metavar': 'NUMBER',
                      'help': 'of each load (30)'}},
    'scale': {
        '--counts': {'type': int, 'nargs': '+', 'metavar': 'NUMBER',
                     'default': [1, 100, 1000],
                     'help': 'of volumes at rest (1 100 1000)'},
        '--hydrating': {'type': int, 'default': 200, 'metavar': 'NUMBER',
                        'help': 'of volumes that hydrate at once (200)'}},
    'copies': {
        '--sizes': {'type': int, 'nargs': '+', 'metavar': 'GIB',
                    'default': [1, 100], 'help': 'of the volumes of this '
                    'driver (1 100); the largest that fits instead of a '
                    'larger one'},
        '--lvm-sizes': {'type': int, 'nargs': '+', 'metavar': 'GIB',
                        'default': [1], 'help': "of those of Cinder's LVM "
                        'driver, which are copied (1); up to 2 fit'}},
    'golden': {
        '--volumes': {'type': int, 'default': 100, 'metavar': 'NUMBER',
                      'help': 'how many of 1 GiB (100); as many as fit if '
                      'that is less'}},
    'thin': {
        '--size': {'type': int, 'default': 10, 'metavar': 'GIB',
                   'help': 'of the volumes (10)'},
        '--percentages': {'type': int, 'nargs': '+', 'metavar': 'PERCENT',
                          'choices': range(1, 101), 'default': [1, 10, 100],
                          'help': 'how much of them is used (1 10 100)'},
        '--extents': {'type': int, 'default': 10000, 'metavar': 'NUMBER',
                      'help': 'of the fragmented volume (10000); 0 for none'},
        '--chunk': {'type': chunk_size, 'metavar': 'KIB',
                    'help': 'of the pools, which are made anew for it; a '
                    "multiple of 64 (LVM's choice)"}},
    'going-back': {
        '--size': {'type': int, 'default': 1, 'metavar': 'GIB',
                   'help': 'of the volume (1)'},
        '--seconds': {'type': int, 'default': 20, 'metavar': 'NUMBER',
                      'help': 'of each load (20)'},
        '--chunk': {'type': int, 'default': 64, 'metavar': 'KIB',
                    'help': 'of the pool, and of what is recorded (64)'},
        '--changed': {'type': int, 'nargs': '+', 'metavar': 'PERCENT',
                      'choices': range(1, 51), 'default': [1, 10],
                      'help': 'of the volume that is written (1 10)'}}}
#: Rounds without --rounds.
_ROUNDS = 4
#: Those of a benchmark with a time limit are this many at least, as one
#: round has no spread.
_FEWEST = 2


def parser():
    made = argparse.ArgumentParser(
        prog='tools/bench', description='Measure in the laboratory that is '
        'up. Compare ratios only: the seconds are those of virtual nodes.')
    kinds = made.add_subparsers(dest='what', metavar='WHAT', required=True,
                                help=', '.join(_MODULES))
    for name in _MODULES:
        kind = kinds.add_parser(name)
        kind.add_argument('--rounds', type=int, metavar='NUMBER')
        for option, more in _OPTIONS.get(name, {}).items():
            kind.add_argument(option, **more)
    return made


def rounds(bench, wanted, clock=time.monotonic):
    """Yield the numbers of a benchmark's rounds.

    :param bench: may have ROUNDS, and MINUTES within which it should end
    :param wanted: how many the user wants, or None
    """
    begin = clock()
    limit = getattr(bench, 'MINUTES', None)
    for number in range(1, (wanted or getattr(bench, 'ROUNDS', _ROUNDS)) + 1):
        done = number - 1
        took = clock() - begin
        if not wanted and limit and done >= _FEWEST and (
                took * number / done > 60 * limit):
            print('no time for another round', flush=True)
            return
        yield number


def main(words=None):
    arguments = vars(parser().parse_args(words))
    module = importlib.import_module(_MODULES[arguments.pop('what')])
    wanted = arguments.pop('rounds')
    bench = module.Bench(**arguments)
    with getattr(bench, 'prepared', contextlib.nullcontext)():
        done = 0
        try:
            for number in rounds(bench, wanted):
                print('round %d' % number, flush=True)
                bench.round()
                done = number
        finally:
            # What was measured is not lost by a later failure.
            if done:
                bench.report()


if __name__ == '__main__':
    main()
