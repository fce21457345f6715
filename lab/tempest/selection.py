# SPDX-License-Identifier: Apache-2.0
"""Which tests run, and which are left out, each for a reason."""

import dataclasses
import pathlib
import re

from lab import paths

#: All tests of volumes, as Cinder asks for of drivers; the same as in
#: .zuul.yaml.
ALL = (r'(^tempest\.(api|scenario)\..*[vV]olume|^cinder_tempest_plugin)')
#: About ten minutes, for the set of tests: whatever creates, copies, moves or
#: removes data of volumes.
SHORT = (
    r'^tempest\.api\.volume\.(test_volumes_(actions|backup|clone|extend|'
    r'snapshots)|test_volume_(delete_cascade|transfers)|admin\.test_'
    r'(volume_retype|volume_manage|snapshot_manage|group_snapshots|'
    r'multi_backend))\.|'
    r'^cinder_tempest_plugin\.api\.volume\.test_volume_(dependency|revert)\.')

_HERE = pathlib.Path(__file__).parent
#: What the laboratory cannot run with any driver.
UNFIT = (_HERE / 'unfit.txt',)
#: What this driver cannot pass, other than Cinder's LVM driver.
DIFFERENCES = (paths.CHECKOUT / 'devstack/tempest-exclude.txt',
               _HERE / 'differences.txt')


@dataclasses.dataclass(frozen=True)
class Rule:
    """Tests that are left out."""

    pattern: str
    reason: str


def parse(text):
    """Return the rules in a list of regular expressions.

    The comment directly above a block of expressions is their reason.
    """
    rules = []
    for block in re.split(r'\n\s*\n', text):
        lines = block.strip().splitlines()
        reason = ' '.join(line.lstrip('# ') for line in lines
                          if line.startswith('#'))
        rules += [Rule(line, reason) for line in lines
                  if line and not line.startswith('#')]
    return rules


def rules(files):
    """Return the rules in some files."""
    return [rule for path in files for rule in parse(path.read_text())]


def divide(tests, without):
    """Return the tests that run, and {test: reason} of those left out."""
    left_out = {}
    for test in tests:
        for rule in without:
            if re.search(rule.pattern, test):
                left_out[test] = rule.reason
                break
    return [test for test in tests if test not in left_out], left_out
