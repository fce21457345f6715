# SPDX-License-Identifier: Apache-2.0
"""What a run of Tempest ended with, beside the last one with LVM."""

import dataclasses
import json
import re
import textwrap

from lab import paths
from lab.tempest import outcomes


@dataclasses.dataclass
class Report:
    """The outcomes of a run; it is kept for the run with the other driver."""

    driver: str
    #: The tests that were to run, without attributes.
    chosen: list
    #: {test: reason}
    left_out: dict
    #: outcomes.Outcome of each test, and of each class as a whole
    found: list
    #: Of the whole run.
    seconds: float

    def tests(self, kind):
        """Return the names of the tests with a kind of outcome."""
        return [each.test for each in self.found if each.kind == kind]

    def save(self):
        """Keep the report in the checkout."""
        _file(self.driver).write_text(json.dumps(
            dataclasses.asdict(self), indent=1))

    @classmethod
    def load(cls, driver):
        """Return the last report of a driver, None if there is none."""
        if not _file(driver).exists():
            return None
        kept = json.loads(_file(driver).read_text())
        kept['found'] = [outcomes.Outcome(**each) for each in kept['found']]
        return cls(**kept)

    def counts(self):
        """Return the line of counts."""
        return ('with the driver %s: %d passed, %d failed, %d skipped, '
                '%d left out, in %d s' % (
                    self.driver, len(self.tests('passed')),
                    len(self.tests('failed')), len(self.tests('skipped')),
                    len(self.left_out), self.seconds))

    def problems(self, code, lvm=None):
        """Return a line per reason for which the run has failed.

        :param code: the exit code of Tempest
        :param lvm: the report of a run with Cinder's LVM driver
        """
        failed = self.tests('failed')
        lines = ['FAILED: ' + test for test in failed]
        if not failed and not self.tests('passed'):
            lines.append('FAILED: no test ran (code %d)' % code)
        elif code and not failed:
            lines.append('FAILED: Tempest ended with code %d though no test '
                         'failed' % code)
        lines += ['NOT AS WITH LVM: %s, which passed there, %s' % each
                  for each in self.differences(lvm)]
        return lines

    def differences(self, lvm):
        """Return (test, what happened here) of what only passes with LVM.

        Failed tests are not repeated.
        """
        here = {each.test: each for each in self.found}
        for test in self.comparable(lvm):
            mine = here.get(test)
            if mine is None:
                yield test, 'did not run here'
            elif mine.kind == 'skipped':
                yield test, 'was skipped here: ' + mine.reason

    def comparable(self, lvm):
        """Return the chosen tests that passed with Cinder's LVM driver."""
        passed = set(lvm.tests('passed')) if lvm else ()
        return [test for test in self.chosen if test in passed]

    def show(self, lvm=None):
        """Return the lines about skipped tests and about the comparison."""
        lines = []
        reasons = {}
        for each in self.found:
            if each.kind == 'skipped':
                reasons.setdefault(_one_line(each.reason), []).append(
                    each.test)
        lines += _listed('skipped', reasons)
        reasons = {}
        for test, reason in self.left_out.items():
            reasons.setdefault(reason, []).append(test)
        lines += _listed('left out', reasons)
        if lvm:
            lines.append("%d of these tests passed with Cinder's LVM driver"
                         % len(self.comparable(lvm)))
        return lines


def _file(driver):
    return paths.CHECKOUT / ('tempest-%s.json' % driver)


def _one_line(reason):
    return re.sub(r'\s+', ' ', reason) or 'no reason given'


def _listed(what, reasons):
    """Return lines of tests that did not run, under their reasons."""
    lines = []
    for reason, tests in sorted(reasons.items()):
        lines += textwrap.wrap('%s, %d: %s' % (what, len(tests), reason), 79)
        lines += ['    ' + test for test in sorted(tests)]
    return lines
