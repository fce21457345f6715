# SPDX-License-Identifier: Apache-2.0
"""What the commands of a page have printed, kept for that page."""

import json
import os
import pathlib

#: Names the folder; without it nothing is kept.
VARIABLE = 'DMCLONE_DAY_OUTPUTS'


class Outputs:
    """The outputs of one page; lab/page_outputs.py writes them into it."""

    def __init__(self, page):
        """:param page: e.g. ``admin/day``"""
        self._page = page
        self._outputs = []

    def add(self, section, number, text):
        """Keep what a block has printed.

        :param number: of the block in its section
        """
        self._outputs.append(
            {'section': section, 'number': number, 'text': text})
        folder = os.environ.get(VARIABLE)
        if folder:
            path = pathlib.Path(folder, self._page.replace('/', '-') +
                                '.json')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(
                {'page': self._page, 'outputs': self._outputs}, indent=1))
