# SPDX-License-Identifier: Apache-2.0
"""The outcome of each test in a subunit stream.

A program by itself, which prints them as JSON: it needs Tempest's environment.
"""

import dataclasses
import json
import sys

_KINDS = {'success': 'passed', 'xfail': 'passed', 'skip': 'skipped'}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a test, or a class that is skipped or broken as a whole, ended."""

    test: str
    #: 'passed', 'skipped' or 'failed'; a test that did not end has failed.
    kind: str
    #: Why it was skipped.
    reason: str
    #: 0 if unknown.
    seconds: float


def name(test_id):
    """Return the name of a test, without its attributes."""
    return test_id.partition('[')[0]


def outcome(test):
    """Return the Outcome of a test of StreamToDict; None if it has none."""
    if not test['id'] or test['status'] == 'exists':
        return None
    first, last = test['timestamps']
    reason = test['details'].get('reason')
    return Outcome(
        name(test['id']), _KINDS.get(test['status'], 'failed'),
        reason.as_text().strip() if reason else '',
        (last - first).total_seconds() if first and last else 0)


def read(stream):
    """Return the outcomes in a stream of bytes."""
    import subunit
    import testtools

    found = []
    result = testtools.StreamToDict(
        lambda test: found.append(outcome(test)))
    result.startTestRun()
    subunit.ByteStreamToStreamResult(
        stream, non_subunit_name='output').run(result)
    result.stopTestRun()
    return [each for each in found if each]


def main(path):
    with open(path, 'rb') as stream:
        print(json.dumps([dataclasses.astuple(each)
                          for each in read(stream)]))


if __name__ == '__main__':
    main(sys.argv[1])
