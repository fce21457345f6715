# SPDX-License-Identifier: Apache-2.0
"""The verbs that are commands of their own, too."""

import argparse
import collections.abc
import types

from cliff import command
from oslo_config import cfg

from dmclone_driver.cmd import check
from dmclone_driver.cmd import forget_node
from dmclone_driver.cmd import move
from dmclone_driver.cmd import reconcile
from dmclone_driver.move import plan


class Single(command.Command):
    """A verb that is done by the command in a module.

    :cvar module: with its ``OPTIONS`` and its ``main``
    """

    module: types.ModuleType

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser of the command's options."""
        parser = super().get_parser(prog_name)
        for option in self.module.OPTIONS:
            _add(parser, option)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Run the command; return its exit code.

        :raises: Refused
        """
        arguments = [each for option in self.module.OPTIONS for each in
                     _given(option, getattr(parsed_args, option.dest))]
        code = self.module.main([*self.app.configuration, *arguments])
        if isinstance(code, str):
            raise plan.Refused(code)
        return code


class Check(Single):
    """Check this node, its configuration and its peers."""

    module = check


class Forget(Single):
    """Finish or give up what depends on a lost node."""

    module = forget_node


class Move(Single):
    """Move a volume that is not attached to another node."""

    module = move


class Reconcile(Single):
    """Show leftovers and pending jobs of this node."""

    module = reconcile


def _add(parser: argparse.ArgumentParser, option: cfg.Opt) -> None:
    """Add an option of a command to the parser of its verb."""
    if option.positional:
        parser.add_argument(option.dest, help=option.help,
                            nargs='*' if option.multi else None)
    elif isinstance(option, cfg.BoolOpt):
        parser.add_argument('--' + option.name, dest=option.dest,
                            action='store_true', help=option.help)
    else:
        parser.add_argument('--' + option.name, dest=option.dest,
                            metavar=option.metavar, help=option.help)


def _given(option: cfg.Opt, value: bool | str | list[str] | None
           ) -> collections.abc.Iterator[str]:
    """Yield the arguments by which a command gets a value of an option."""
    if option.positional:
        yield from value if isinstance(value, list) else [str(value)]
    elif value is True:
        yield '--' + option.name
    elif value:
        yield '--%s=%s' % (option.name, value)
