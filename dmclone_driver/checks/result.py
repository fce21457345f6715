# SPDX-License-Identifier: Apache-2.0
"""The result of a check as a value: what was found, and what to do."""

import dataclasses
import enum
from typing import Any

from dmclone_driver import exception


class Outcome(enum.StrEnum):
    """What a check has found."""

    OK = 'ok'
    FAILED = 'failed'
    #: The node does not use what is checked.
    NOT_APPLICABLE = 'not applicable'
    #: The check could not be carried out.
    UNKNOWN = 'unknown'


@dataclasses.dataclass(frozen=True)
class Setting:
    """An option, for the message of a refused start."""

    option: str
    value: Any
    section: str


@dataclasses.dataclass(frozen=True)
class Result:
    """One line of dmclone-check.

    With a setting a failure refuses the start of the backend, with the same
    text and remedy.
    """

    check: str
    outcome: Outcome
    #: A clause that says what was found.
    text: str
    #: What to do about it; for UNKNOWN, how to make the check possible.
    remedy: str = ''
    #: A backend or a peer; empty for the node.
    subject: str = ''
    setting: Setting | None = None

    @property
    def refused(self) -> bool:
        """Whether the start of the backend is refused for that."""
        return self.outcome == Outcome.FAILED and self.setting is not None

    @property
    def reason(self) -> str:
        """What was found and what to do, in one clause."""
        return '; '.join(filter(None, (self.text, self.remedy)))

    def error(self) -> exception.BadConfiguration:
        """Return the exception that refuses the start."""
        assert self.setting is not None
        return exception.BadConfiguration(
            **dataclasses.asdict(self.setting), reason=self.reason)

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {'check': self.check, 'subject': self.subject,
                'outcome': str(self.outcome), 'text': self.text,
                'remedy': self.remedy, 'start_refused': self.refused}


def ok(check: str, text: str, subject: str = '') -> Result:
    return Result(check, Outcome.OK, text, subject=subject)


def failed(check: str, text: str, remedy: str, subject: str = '',
           setting: Setting | None = None) -> Result:
    return Result(check, Outcome.FAILED, text, remedy, subject, setting)


def not_applicable(check: str, text: str, subject: str = '') -> Result:
    return Result(check, Outcome.NOT_APPLICABLE, text, subject=subject)


def unknown(check: str, text: str, remedy: str, subject: str = '') -> Result:
    return Result(check, Outcome.UNKNOWN, text, remedy, subject)


def refused(check: str, error: exception.BadConfiguration,
            subject: str = '') -> Result:
    """Return the result for an exception that would refuse the start."""
    known = error.kwargs
    return Result(check, Outcome.FAILED, known['reason'], subject=subject,
                  setting=Setting(known['option'], known['value'],
                                  known['section']))
