# SPDX-License-Identifier: Apache-2.0
"""Functions of the laboratory, without a laboratory."""

import dataclasses
import pathlib
import tomllib
import unittest
from unittest import mock

import fixtures

from lab import __main__ as command_line
from lab import apt
from lab.common import commands
from lab.common import leftovers
from lab import config
from lab import errors
from lab import image
from lab import kernel
from lab import machine
from lab import nodefiles
from lab import packaged
from lab import paths
from lab import seed
from lab import settings
from lab import setup
from lab import ticker
from lab import venv
from tests.unit import base


class TickerTest(unittest.TestCase):
    """Hangs and crashes of a node are found."""

    def test_well(self):
        self.assertEqual([], ticker.troubles('boot 1\n2\n3\n', 4, True))

    def test_power_cut_and_boot_are_no_trouble(self):
        text = 'boot 1\n2\noff 3\nboot 60\n61\n'
        self.assertEqual([], ticker.troubles(text, 62, True))
        self.assertEqual([], ticker.troubles('boot 1\n2\noff 9\n', 99, False))

    def test_line_cut_off_by_a_power_cut(self):
        text = 'boot 1\n2\nbo\noff 3\nboot 60\n'
        self.assertEqual([], ticker.troubles(text, 61, True))

    def test_stood_still(self):
        self.assertEqual(['stood still for 8.0 s at 2'],
                         ticker.troubles('boot 1\n2\n10\n11\n', 12, True))

    def test_stands_still(self):
        self.assertEqual(['stands still since 2, for 8.0 s'],
                         ticker.troubles('boot 1\n2\n', 10, True))

    def test_died_by_itself(self):
        self.assertEqual(['died by itself at 2'],
                         ticker.troubles('boot 1\n2\n', 3, False))
        self.assertEqual(['died by itself at 2'],
                         ticker.troubles('boot 1\n2\nboot 3\n', 4, True))


class SourcesTest(unittest.TestCase):
    """Both formats of apt's sources are parsed."""

    def test_formats_agree(self):
        stanza = ('Types: deb\n# a remark\n'
                  'URIs: http://example.org/debian\n'
                  'Suites: one one-updates\nComponents: main contrib\n'
                  'Signed-By: /a/key.gpg\n\n'
                  'Enabled: no\nTypes: deb\n')
        line = ('# a remark\ndeb [arch=amd64 signed-by=/a/key.gpg] '
                'http://example.org/debian one main contrib  # end\n')
        first, = apt._stanzas(stanza)
        second, = apt._one_liners(line)
        for fields in (first, second):
            self.assertEqual(
                'deb [arch=amd64 signed-by=/a/key.gpg] '
                'http://example.org/debian two main', apt._line(fields, 'two'))


class ModulesTest(base.PlainTestCase):
    """Modules of a folder replace those of the nodes' kernel."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        cache = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.patch('lab.paths.CACHE', new=cache)
        theirs = (cache / 'kernel-unstable/usr/lib/uml/modules/7.2.7/kernel/'
                  'drivers/md')
        theirs.mkdir(parents=True)
        (theirs / 'dm-clone.ko').touch()
        self.useFixture(fixtures.EnvironmentVariable(kernel.MODULES,
                                                     str(self.folder)))
        self.modinfo = self.patch(
            'lab.command.run', return_value='7.2.7 mod_unload \n')

    def add(self, name):
        (self.folder / name).touch()
        return self.folder / name

    def assertRefused(self, text):
        error = self.assertRaises(errors.LabError, kernel.replacements,
                                  'unstable')
        self.assertIn(text, str(error))

    def test_none(self):
        self.useFixture(fixtures.EnvironmentVariable(kernel.MODULES))
        self.assertEqual([], kernel.replacements('unstable'))
        self.modinfo.assert_not_called()

    def test_module(self):
        self.add('README')
        self.assertEqual([self.add('dm-clone.ko')],
                         kernel.replacements('unstable'))

    def test_empty_folder(self):
        """Nobody believes in a patch that is not there."""
        self.assertRefused('no module')

    def test_unknown_module(self):
        self.add('dm-other.ko')
        self.assertRefused('dm-other.ko')

    def test_another_kernel(self):
        self.add('dm-clone.ko')
        self.modinfo.return_value = '7.2.13 mod_unload \n'
        self.assertRefused('7.2.13')


class ToolsTest(base.PlainTestCase):
    """The programs that run and count tests are installed if missing."""

    def setUp(self):
        super().setUp()
        self.which = self.patch('shutil.which')
        self.find_spec = self.patch('importlib.util.find_spec')
        self.interpreter = self.patch('lab.venv.interpreter',
                                      return_value='/opt/bin/python3')
        self.ready = self.patch('lab.venv.tools_ready', return_value=True)
        self.missing = self.patch('lab.apt.missing', return_value=[])
        self.install = self.patch('lab.apt.install')
        self.make = self.patch('lab.venv._make')
        self.patch('lab.errors.say')
        cache = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.patch('lab.paths.CACHE', cache / 'cache')
        self.patch('lab.venv.TOOLS', cache / 'cache')

    def test_all_is_there(self):
        setup.tools()
        self.missing.assert_not_called()
        self.make.assert_not_called()

    def test_nothing_is_there(self):
        self.which.return_value = self.find_spec.return_value = None
        self.interpreter.return_value = '/usr/bin/python3.11'
        self.ready.return_value = False
        self.missing.side_effect = list
        setup.tools()
        self.install.assert_called_once_with([
            'git', 'ca-certificates', 'gcc', 'libc6-dev', 'python3-venv',
            'python3-dev'])
        self.make.assert_called_once()

    def test_a_package_is_missing(self):
        self.which.side_effect = lambda name: name == 'git'
        self.missing.return_value = ['gcc']
        setup.tools()
        self.install.assert_called_once_with(['gcc'])
        self.make.assert_not_called()


class ReleaseTest(base.PlainTestCase):
    """An older OpenStack has an environment and a seed of its own."""

    def use(self, release):
        self.useFixture(fixtures.EnvironmentVariable('DMCLONE_LAB_RELEASE',
                                                     release))
        return venv.folder(), seed.inputs()

    def test_each_has_its_own(self):
        found = [self.use(release)
                 for release in (None, '2025.1', '2025.2', '2026.1')]
        self.assertEqual(4, len({folder for folder, _ in found}))
        self.assertEqual(4, len({'\0'.join(inputs) for _, inputs in found}))
        self.assertEqual(found[0], self.use(''))

    def test_unknown(self):
        self.assertRaises(errors.LabError, self.use, '2024.2')


class SettingsTest(unittest.TestCase):

    def test_merged(self):
        before = {'a': {'x': '1', 'y': '2'}}
        self.assertEqual(
            {'a': {'y': '3'}, 'b': {'z': '4'}},
            config.merged(before, {'a': {'x': None, 'y': '3'},
                                   'b': {'z': '4'}}))
        self.assertEqual({'a': {'x': '1', 'y': '2'}}, before)

    def test_coordination(self):
        """All hosts use the same etcd, or each host its own files."""
        for kind, expected in (('file', None), ('etcd', {
                'backend_url': 'etcd3+http://10.77.0.1:2379'})):
            choices = settings.Settings(coordination=kind)
            for made in (config.cinder_control(kind),
                         config.cinder_node('node1', '10.77.0.11', choices)):
                self.assertEqual(expected, made.get('coordination'))

    def test_kind_of_volumes(self):
        for thin, expected in ((False, 'default'), (True, 'thin')):
            for driver in ('dmclone', 'both'):
                made = config.cinder_node(
                    'node1', '10.77.0.11',
                    settings.Settings(thin=thin, driver=driver))
                self.assertEqual(expected, made['dmclone']['lvm_type'])


class CommandLineTest(base.PlainTestCase):

    def test_defaults(self):
        self.assertEqual(settings.Settings(), command_line.chosen(
            command_line.parser().parse_args(['up'])))

    def test_package(self):
        found = command_line.chosen(command_line.parser().parse_args(
            ['up', '--package', 'driver.deb']))
        self.assertEqual(str(pathlib.Path('driver.deb').absolute()),
                         found.package)


class PackagedTest(base.PlainTestCase):
    """Nodes with the driver's Debian package have nothing of the checkout."""

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        package = self.folder / 'driver_1_all.deb'
        package.write_text('the package')
        self.settings = settings.Settings(package=str(package))
        self.release(packaged.RELEASE)
        self.useFixture(fixtures.EnvironmentVariable(kernel.MODULES))

    def release(self, name):
        self.useFixture(fixtures.EnvironmentVariable('DMCLONE_LAB_RELEASE',
                                                     name))

    def test_possible(self):
        packaged.check(self.settings)
        self.release(None)
        packaged.check(settings.Settings(nova=True, driver='both'))

    def test_refused(self):
        for change, text in (({'package': '/nowhere.deb'}, 'nowhere.deb'),
                             ({'nova': True}, '--nova'),
                             ({'bare': True}, '--bare'),
                             ({'driver': 'lvm'}, '--driver'),
                             ({'target': 'lio'}, '--target'),
                             ({'mode': 'threads'}, '--mode')):
            self.assertRaisesRegex(
                errors.LabError, text, packaged.check,
                dataclasses.replace(self.settings, **change))
        for name in (None, '2025.2'):
            self.release(name)
            self.assertRaisesRegex(errors.LabError, packaged.RELEASE,
                                   packaged.check, self.settings)

    def test_release_is_a_known_one(self):
        self.assertEqual('constraints-2025.1.txt', venv.constraints().name)

    def files(self, choices):
        """Return the folder of a node's files, and its variables."""
        node = mock.Mock(settings=choices, ip='10.77.0.11')
        node.name = 'node1'
        node.machine = machine.Machine('node1', 1, choices)
        node.machine.share = share = self.folder / 'share'
        nodefiles.write(node)
        text = (share / 'node.env').read_text()
        return share, dict(line.split('=', 1) for line in text.splitlines())

    def test_files(self):
        share, variables = self.files(self.settings)
        self.assertEqual('the package', (share / 'driver.deb').read_text())
        self.assertEqual([], list((share / 'files').iterdir()))
        for name, value in (('PACKAGED', 'yes'), ('LAB_FOLDERS', ''),
                            ('CHECKOUT', ''), ('VENV', '/usr'),
                            ('VENV_FOLDER', '/usr')):
            self.assertEqual('"%s"' % value, variables[name])
        self.assertNotIn(str(paths.CHECKOUT), ''.join(variables.values()))

    def test_files_of_other_nodes(self):
        share, variables = self.files(settings.Settings())
        self.assertFalse((share / 'driver.deb').exists())
        self.assertEqual('""', variables['PACKAGED'])
        self.assertIn(str(paths.CHECKOUT), variables['LAB_FOLDERS'])
        self.assertTrue(list(share.glob('files/etc/udev/rules.d/*')))

    def test_disk(self):
        for choices, expected in ((self.settings, image.PACKAGED),
                                  (settings.Settings(), image.IMAGE)):
            argv = machine.Machine('node1', 1, choices)._argv(3)
            disk, = [word for word in map(str, argv)
                     if word.startswith('ubd0=')]
            self.assertEqual(str(expected), disk.partition(',')[2])

    def test_root_is_gained_by_rootwrap(self):
        made = [config.cinder_node('node1', '10.77.0.11', choices)
                for choices in (self.settings, settings.Settings())]
        self.assertEqual(
            [[], ['cinder_sys_admin', 'privsep_osbrick',
                  'dmclone_privileged']],
            [[name for name, options in each.items()
              if 'helper_command' in options] for each in made])
        self.assertEqual([False, True], ['log_file' in each['DEFAULT']
                                         for each in made])

    def test_commands(self):
        """Those of the package are run, each by its own name."""
        scripts = tomllib.loads(
            (paths.CHECKOUT / 'pyproject.toml').read_text())['project'][
                'scripts']
        for program, where in scripts.items():
            node = mock.Mock(settings=self.settings)
            name = where.partition(':')[0].rpartition('.')[2]
            commands.run(node, name, '--json')
            self.assertEqual(
                program + ' --config-file /etc/cinder/cinder.conf --json',
                node.try_run.call_args.args[0])


class LeftoversTest(unittest.TestCase):
    """What a node prints is left over, but for the pool of thin volumes."""

    POOL = ('mapping cinder--volumes-cinder--volumes--pool-tpool\t(253:2)',
            'mapping cinder--volumes-cinder--volumes--pool_tdata\t(253:1)',
            'volume cinder-volumes cinder-volumes-pool')
    OTHER = ('mapping cinder--volumes-volume--1\t(253:3)',
             'volume cinder-volumes volume-1 ',
             'volume cinder-metadata cinder-volumes-pool')

    def find(self, thin):
        node = mock.Mock()
        node.name = 'node1'
        node.run.return_value = '\n'.join((*self.POOL, *self.OTHER))
        return leftovers.find(mock.Mock(
            nodes={'node1': node}, settings=settings.Settings(thin=thin),
            sql=lambda statement: []))

    def test_thick(self):
        self.assertEqual(['node1: ' + line for line in (
            *self.POOL, *self.OTHER)], self.find(False))

    def test_volumes(self):
        """Those that move from node to node."""
        node = mock.Mock()
        node.run.return_value = ' cinder-volumes-pool\n volume-1\n'
        self.assertEqual(['volume-1'], leftovers.volumes(node))

    def test_thin(self):
        self.assertEqual(['node1: ' + line for line in self.OTHER],
                         self.find(True))


if __name__ == '__main__':
    unittest.main()
