# SPDX-License-Identifier: Apache-2.0
"""Shared by the verbs that only read: which nodes they ask, and how long."""

import argparse
import collections.abc
from typing import Any

from cinder import context as cinder_context
from cliff import lister
from oslo_config import cfg

from dmclone_driver.checks import backends
from dmclone_driver.cmd import display
from dmclone_driver.cmd import program
from dmclone_driver.i18n import _
from dmclone_driver.move import plan
from dmclone_driver.move import rpcapi

CONF = cfg.CONF

#: Seconds that all answers together may take.
LIMIT = 5


class Reading:
    """What a verb that only reads inherits, besides its class of cliff.

    :ivar code: the exit code; see the page of the command
    """

    app: Any
    code = 0

    @staticmethod
    def add_limit(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """Add the option of all verbs that ask nodes."""
        parser.add_argument(
            '--limit', type=seconds, default=LIMIT, metavar='SECONDS',
            help=_('How long to wait for all answers together. Default: '
                   '%(default)s.'))
        return parser

    @classmethod
    def add_backends(cls, parser: argparse.ArgumentParser
                     ) -> argparse.ArgumentParser:
        """Add the options of verbs that ask all nodes."""
        parser.add_argument(
            '--backend', action='append', default=[], metavar='BACKEND',
            help=_('Section of cinder.conf that configures the backend, '
                   'alike on all nodes. Can be repeated. Default: all enabled '
                   'backends that use this driver.'))
        return cls.add_limit(parser)

    def connect(self) -> tuple[cinder_context.RequestContext,
                               rpcapi.PeerClient]:
        """Read the configuration, and connect to the database and the bus."""
        program.configure([], self.app.configuration)
        program.connect()
        return cinder_context.get_admin_context(), rpcapi.PeerClient()

    def open(self, parsed_args: argparse.Namespace
             ) -> tuple[cinder_context.RequestContext, rpcapi.PeerClient,
                        list[str]]:
        """Connect, and find the backends to ask.

        :returns: a context, the client, and the names of the backends
        :raises: Refused
        """
        context, client = self.connect()
        names = parsed_args.backend or _configured()
        if not names:
            raise plan.Refused(_(
                'No backend in enabled_backends uses this driver on this '
                'host. Name one with --backend.'))
        return context, client, names


class Table(Reading, lister.Lister):
    """A verb that shows nodes in a table and, to people, more text below.

    :cvar short: the columns that people see unless they name others
    :cvar dispensable: those of them that a narrow terminal does not show, in
        the order in which they are left out
    """

    short: collections.abc.Sequence[str]
    dispensable: collections.abc.Sequence[str] = ()

    def below(self, width: int | None) -> collections.abc.Iterable[str]:
        """Return the texts below the table; a verb may have none.

        :param width: of the terminal, None for a pipe
        """
        return ()

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: collections.abc.Sequence[str],
                       data: Any) -> int:
        """Print the table, and for people the texts below it."""
        if parsed_args.formatter != 'table' or parsed_args.columns:
            return super().produce_output(parsed_args, column_names, data)
        width = display.width_of(self.app.stdout)
        people = argparse.Namespace(**dict(
            vars(parsed_args), columns=self._columns(width),
            fit_width=parsed_args.fit_width or width is not None))
        super().produce_output(people, column_names, data)
        for text in self.below(width):
            self.app.stdout.write('\n%s\n' % text)
        return 0

    def _columns(self, width: int | None) -> list[str]:
        shown = list(self.short)
        for name in self.dispensable:
            if width is None or sum(map(_width, shown)) < width:
                break
            shown.remove(name)
        return shown

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the verb; return its exit code."""
        super().run(parsed_args)
        return self.code


def _width(name: str) -> int:
    """Return the characters that a column takes at least.

    The formatter folds values, but not names of columns, and gives each at
    least eight (cliff/formatters/table.py).
    """
    return max(len(name), 8) + len('|  ')


def _configured() -> list[str]:
    """Return the enabled backends that use this driver."""
    if not CONF.enabled_backends:
        return []
    module, _options = program.load_driver()
    return backends.using(module.DMCloneVolumeDriver)


def seconds(text: str) -> float:
    """Return a positive number of seconds of an option's value."""
    number = float(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(_('%s is not positive') % text)
    return number
