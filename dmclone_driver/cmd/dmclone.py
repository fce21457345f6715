# SPDX-License-Identifier: Apache-2.0
"""dmclone: see and move the volumes of all nodes."""

import argparse
import collections.abc
from importlib import metadata
import logging
import sys
from typing import Any

from cliff import app
from cliff import commandmanager

import dmclone_driver
from dmclone_driver.i18n import _

#: The verbs, and where the class of each is, which is loaded if it is used.
VERBS = {
    'check': 'dmclone_driver.cmd.singles:Check',
    'drain': 'dmclone_driver.cmd.drain:Drain',
    'forget': 'dmclone_driver.cmd.singles:Forget',
    'move': 'dmclone_driver.cmd.singles:Move',
    'pace': 'dmclone_driver.cmd.pace:Pace',
    'reconcile': 'dmclone_driver.cmd.singles:Reconcile',
    'show': 'dmclone_driver.cmd.show:Show',
    'status': 'dmclone_driver.cmd.status:Status',
    'watch': 'dmclone_driver.cmd.status:Watch',
}


class Verbs(commandmanager.CommandManager):
    """The verbs, as entry points that are found without an installation."""

    def __init__(self) -> None:
        super().__init__(None)
        # Under this name cliff looks for plug-ins of a verb.
        self.namespace = dmclone_driver.__name__ + '.verbs'
        for name, where in VERBS.items():
            self.commands[name] = metadata.EntryPoint(
                name, where, self.namespace)


class Application(app.App):
    """The general options, and what is the same for all verbs."""

    NAME = 'dmclone'
    LOG = logging.getLogger(NAME)

    def __init__(self, **streams: Any) -> None:
        super().__init__(
            _('See and move the volumes of all nodes.'),
            dmclone_driver.__version__, Verbs(), deferred_help=True,
            **streams)

    def build_option_parser(
            self, description: str | None, version: str | None,
            argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        """Return the parser of the general options.

        They may be before or after the verb. The options of cliff that choose
        its log are not among them, as Cinder's configuration does that.
        """
        parser = argparse.ArgumentParser(
            prog=self.NAME, description=description, add_help=False,
            allow_abbrev=False, usage=_('%(prog)s [OPTION...] VERB ...'),
            **argparse_kwargs or {})
        parser.add_argument('-h', '--help', action='store_true',
                            dest='deferred_help',
                            help=_('Show this help, or that of the verb.'))
        parser.add_argument('--version', action='version',
                            version=str(version),
                            help=_('Show the version of this package.'))
        parser.add_argument('--config-file', metavar='PATH', action='append',
                            default=[],
                            help=_("Configuration file, instead of Cinder's. "
                                   'Can be repeated.'))
        parser.add_argument('--config-dir', metavar='FOLDER', action='append',
                            default=[],
                            help=_('Folder of configuration files. Can be '
                                   'repeated.'))
        parser.add_argument('--debug', action='store_true',
                            help=_('Show where an error was found.'))
        return parser

    def configure_logging(self) -> None:
        """Print errors of the verbs as they are, to the error stream.

        What libraries log is printed as program.configure decides.
        """
        self.LOG.handlers = [logging.StreamHandler(self.stderr)]
        self.LOG.setLevel(logging.INFO)
        self.LOG.propagate = False

    @property
    def configuration(self) -> list[str]:
        """The arguments about Cinder's configuration, for its programs."""
        return ['--%s=%s' % (name, value) for name, values in (
            ('config-file', self.options.config_file),
            ('config-dir', self.options.config_dir)) for value in values]

    def interact(self) -> None:
        """Refuse a call without a verb."""
        self.parser.error(_('which verb? See --help.'))


def main(arguments: collections.abc.Sequence[str] | None = None) -> int:
    """Run a verb; return its exit code."""
    return Application().run(list(
        sys.argv[1:] if arguments is None else arguments))


if __name__ == '__main__':
    sys.exit(main())
