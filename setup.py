# SPDX-License-Identifier: Apache-2.0

import pathlib
import runpy
import sys

import setuptools

if 'bdist_wheel' in sys.argv:
    # The man pages, which pyproject.toml lists. They are made from the
    # documentation. pbr replaces a cmdclass, so this is no command.
    runpy.run_path('tools/man_pages.py')['write'](pathlib.Path('build/man'))

setuptools.setup(
    setup_requires=['pbr>=6.1.1'],
    pbr=True)
