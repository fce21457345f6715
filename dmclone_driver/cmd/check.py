# SPDX-License-Identifier: Apache-2.0
"""dmclone-check: check this node, its configuration and its peers."""

import collections.abc
import json
import sys

from cinder import context as cinder_context
from oslo_config import cfg

from dmclone_driver.checks import backends
from dmclone_driver.checks import host
from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks.result import Result
from dmclone_driver.checks import survey
from dmclone_driver.cmd import program
from dmclone_driver.i18n import _
from dmclone_driver.move import plan
from dmclone_driver.move import rpcapi

CONF = cfg.CONF

OPTIONS = [
    cfg.MultiStrOpt('backend', positional=True, default=[],
                    help='Sections of cinder.conf to check. Default: all '
                         'enabled backends that use this driver.'),
    cfg.BoolOpt('json', default=False,
                help='Print one JSON document instead of lines.'),
]

#: What a line begins with, and the same where only ASCII can be printed.
SIGNS = {Outcome.OK: ('\N{CHECK MARK}', 'ok'),
         Outcome.FAILED: ('\N{BALLOT X}', 'FAILED'),
         Outcome.NOT_APPLICABLE: ('-', '-'),
         Outcome.UNKNOWN: ('?', '?')}


def _check(context: cinder_context.RequestContext) -> int:
    module, options = program.load_driver()
    driver = module.DMCloneVolumeDriver
    sections = CONF.backend or backends.using(driver)
    if not sections:
        raise plan.Refused(_(
            'No backend in enabled_backends uses this driver. See the '
            'chapter "Configuration" of its documentation.'))
    program.prepare_root()
    configurations = [program.configuration_of(
        section, options + driver.get_driver_options())
        for section in sections]
    found = survey.Survey(context, host.Host(), driver, driver.VERSION,
                          _connect).run(configurations)
    if CONF.json:
        results = list(found)
        print(json.dumps({
            'node': survey.node_of(configurations[0]),
            'version': driver.VERSION,
            'results': [each.as_dict() for each in results]}, indent=2))
    else:
        results = list(_tell(found))
    return int(any(each.outcome in (Outcome.FAILED, Outcome.UNKNOWN)
                   for each in results))


def _connect() -> rpcapi.PeerClient:
    program.connect()
    return rpcapi.PeerClient()


def _tell(found: collections.abc.Iterable[Result]
          ) -> collections.abc.Iterator[Result]:
    """Print each result as soon as there is one, and pass it on."""
    plain = _is_plain()
    for each in found:
        print(line(each, plain), flush=True)
        yield each


def _is_plain() -> bool:
    """Whether the signs cannot be printed."""
    try:
        ''.join(signs[0] for signs in SIGNS.values()).encode(
            sys.stdout.encoding or 'ascii')
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def line(found: Result, plain: bool) -> str:
    """Return the line of a result.

    :param plain: whether it may contain only ASCII
    """
    text = '%s %s%s: %s' % (
        SIGNS[found.outcome][plain],
        '[%s] ' % found.subject if found.subject else '', found.check,
        ' '.join(found.reason.split()))
    return text.encode('ascii', 'replace').decode() if plain else text


def main(arguments: list[str] | None = None) -> int | str:
    """Print one line per check; return 1 if not all are right."""
    return program.run_plainly(OPTIONS, _check, arguments)


if __name__ == '__main__':
    sys.exit(main())
