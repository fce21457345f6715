# SPDX-License-Identifier: Apache-2.0
"""The alert rules of the package."""

import yaml

from lab import paths

FILE = paths.CHECKOUT / 'etc/prometheus/dmclone.rules.yml'


def rules():
    """Return {name: rule} of all alert rules."""
    group, = yaml.safe_load(FILE.read_text())['groups']
    return {rule['alert']: rule for rule in group['rules']}
