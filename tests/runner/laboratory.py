# SPDX-License-Identifier: Apache-2.0
"""The laboratory that sets share: one that is up, or one of this run."""

import signal
import subprocess
import time

from lab import errors
from lab import logs
from lab import network
from lab import paths
from lab import proc
from lab import settings
from tests.runner import programs

_LAB = paths.CHECKOUT / 'tools/lab'


def _words(wanted):
    """Yield the options of `tools/lab up` for some settings."""
    for name, value in wanted.items():
        yield '--' + name
        if value is not True:
            yield str(value)


class Laboratory:
    """The shared laboratory; if it was up already it is left up."""

    def __init__(self):
        #: Whether this run has started it.
        self.ours = False
        self._wanted = {}

    def need(self, wanted):
        """Ensure that a laboratory with some settings is up.

        :raises LabError: if that is not possible
        """
        if not network.exists():
            self._bring_up(wanted)
        elif not self._runs():
            # Its run was killed, or the machine has rebooted.
            self._replace('of which nothing runs', wanted)
        elif not self._is_well():
            raise errors.LabError('the one that is up is not healthy, see '
                                  '`tools/lab status`; `tools/lab down` '
                                  'takes it down')
        elif not self.ours:
            self._check(wanted)
        elif wanted and wanted != self._wanted:
            # A set without settings can use any laboratory.
            self._replace('for one with ' + ' '.join(_words(wanted)), wanted)

    @staticmethod
    def _runs():
        return any(map(proc.alive, proc.names()))

    @staticmethod
    def _is_well():
        with programs.started([_LAB, 'status'], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as status:
            return not status.wait()

    @staticmethod
    def _check(wanted):
        there = settings.Settings.load()
        if there.nodes < wanted.get('nodes', 0):
            raise errors.LabError(
                'the one that is up has %d nodes, and %d are needed: take it '
                'down with `tools/lab down`, and run the set again' % (
                    there.nodes, wanted['nodes']))
        if there.node_memory < wanted.get('memory', 0):
            raise errors.LabError(
                'the nodes of the one that is up have %d MiB, and need %d: '
                'take it down with `tools/lab down`, and run the set again' % (
                    there.node_memory, wanted['memory']))
        for name, what in (('nova', 'instances'), ('coordination', 'etcd'),
                           ('thin', 'thin volumes')):
            if wanted.get(name, getattr(there, name)) != getattr(there, name):
                raise errors.LabError(
                    "the one that is up has no %s: take it down with "
                    "`tools/lab down`, and run the set again" % what)

    def _replace(self, why, wanted):
        programs.say('taking the laboratory down ' + why)
        programs.quietly([_LAB, 'down'])
        self._bring_up(wanted)

    def _bring_up(self, wanted):
        programs.say('bringing the laboratory up')
        # A laboratory that is partly up is taken down at the end, too.
        self.ours, self._wanted = True, wanted
        with programs.started([_LAB, 'up', *_words(wanted)]) as up:
            up.wait()
        if up.returncode:
            raise errors.LabError('it could not be brought up')

    def leave(self):
        """Take down this run's laboratory, with signals ignored."""
        if not self.ours:
            return
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.end()

    def end(self):
        """Take down this run's laboratory; others may need another one."""
        if self.ours:
            programs.say('taking the laboratory down')
            programs.quietly([_LAB, 'down'])
            self.ours = False

    def keep_logs(self, folder, name):
        """Copy the laboratory's logs into a new folder."""
        place = folder / (name + time.strftime('-%Y%m%dT%H%M%SZ',
                                               time.gmtime()))
        try:
            logs.collect(place)
            programs.say("the laboratory's logs are in %s" % place)
        except (errors.LabError, OSError) as error:
            programs.say("the laboratory's logs could not be collected: %s"
                         % error)
