# SPDX-License-Identifier: Apache-2.0
"""The driver's methods have the signatures that Cinder calls.

Cinder's own compliance test is not sufficient: its interfaces compare only the
names of class methods, and a driver inherits the others. Here each method is
compared with Cinder's declarations (interfaces, base classes, the driver's
base) and with every call in Cinder's sources.
"""

import ast
import functools
import importlib
import inspect

from cinder import interface
from cinder.interface import volume_driver
from cinder.interface import volume_manageable_driver
from cinder.interface import volume_snapshot_revert
from cinder.interface import volume_snapshotmanagement_driver
from cinder.volume import driver as base_driver
from cinder.volume.drivers import lvm
import testtools

DRIVER = 'dmclone_driver.driver.DMCloneVolumeDriver'

INTERFACES = (
    volume_driver.VolumeDriverCore,
    volume_manageable_driver.VolumeListManageableDriver,
    volume_snapshotmanagement_driver.VolumeSnapshotManagementDriver,
    volume_snapshot_revert.VolumeSnapshotRevertDriver,
)

BASES = (
    base_driver.BaseVD,
    base_driver.CloneableImageVD,
    base_driver.MigrateVD,
    base_driver.ManageableVD,
    base_driver.ManageableSnapshotsVD,
    base_driver.VolumeDriver,
)

# The modules of Cinder that call a driver.
CALLERS = (
    'cinder.volume.manager',
    'cinder.volume.flows.manager.create_volume',
    'cinder.volume.flows.manager.manage_existing',
    'cinder.volume.flows.manager.manage_existing_snapshot',
    'cinder.volume.volume_utils',
    'cinder.volume.driver',
    'cinder.volume.drivers.lvm',
)

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY,
              inspect.Parameter.POSITIONAL_OR_KEYWORD)


def signature(cls, name):
    """Return the signature of a method without self, or None."""
    found = inspect.getattr_static(cls, name, None)
    if found is None or isinstance(found, property):
        return None
    bound = isinstance(found, (staticmethod, classmethod))
    method = getattr(cls, name)
    if not callable(method):
        return None
    result = inspect.signature(method)
    if bound:
        return result
    return result.replace(parameters=list(result.parameters.values())[1:])


def declarations(cls):
    """Return {public method that Cinder declares: {owner: signature}}."""
    owners = list(INTERFACES) + list(BASES)
    owners += [base for base in cls.__mro__
               if base.__module__.startswith('cinder.') and
               base not in owners]
    declared = {}
    for owner in owners:
        # An interface inherits from a smaller one: use both.
        for part in owner.__mro__:
            if not part.__module__.startswith('cinder.'):
                continue
            for name, member in vars(part).items():
                if name.startswith('_') or not inspect.isroutine(
                        getattr(member, '__func__', member)):
                    continue
                if isinstance(member, classmethod) and \
                        issubclass(owner, INTERFACES):
                    continue
                wanted = signature(part, name)
                if wanted is not None:
                    declared.setdefault(name, {})[part] = wanted
    return declared


def differences(declared, actual):
    """Return why a caller of ``declared`` cannot call ``actual``."""
    wrong = []
    wanted = list(declared.parameters.values())
    have = list(actual.parameters.values())
    places = [p for p in have if p.kind in POSITIONAL]
    keywords = any(p.kind is p.VAR_KEYWORD for p in have)
    number = 0
    for parameter in wanted:
        if parameter.kind is parameter.VAR_KEYWORD:
            if not keywords:
                wrong.append('takes no further keyword arguments')
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            mine = actual.parameters.get(parameter.name)
            if mine is None and not keywords:
                wrong.append('%s is missing' % parameter.name)
                continue
        else:
            mine = places[number] if number < len(places) else None
            number += 1
            if mine is None:
                wrong.append('%s is missing' % parameter.name)
                continue
            if mine.name != parameter.name:
                wrong.append('%s is called %s'
                             % (parameter.name, mine.name))
                continue
        if mine is not None and mine.default != parameter.default:
            wrong.append('the default of %s differs' % parameter.name)
    known = {p.name for p in wanted}
    for parameter in have:
        if parameter.name in known or parameter.default is not \
                parameter.empty or parameter.kind in (
                    parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if not (parameter in places and places.index(parameter) < number):
            wrong.append('%s is asked for as well' % parameter.name)
    return wrong


class Call:
    """One call of a driver's method in Cinder's sources."""

    def __init__(self, module, node, method):
        self.method = method
        self.where = '%s:%d' % (module, node.lineno)
        self.positional = sum(not isinstance(a, ast.Starred)
                              for a in node.args)
        self.keywords = [k.arg for k in node.keywords if k.arg]
        self.open = (len(node.args) > self.positional or
                     any(k.arg is None for k in node.keywords))

    def __str__(self):
        return '%s at %s' % (self.method, self.where)

    def fits(self, actual):
        bind = actual.bind_partial if self.open else actual.bind
        try:
            bind(*[None] * self.positional, **dict.fromkeys(self.keywords))
        except TypeError as exc:
            return str(exc)
        return None


def is_driver(node, in_driver):
    if isinstance(node, ast.Attribute):
        return node.attr in ('driver', '_driver')
    if isinstance(node, ast.Name):
        return node.id == 'driver' or (in_driver and node.id == 'self')
    return False


@functools.cache
def calls():
    """Return all calls of a driver's methods in Cinder."""
    found = []
    for name in CALLERS:
        module = importlib.import_module(name)
        in_driver = name in ('cinder.volume.driver',
                             'cinder.volume.drivers.lvm')
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if (isinstance(node, ast.Call) and
                    isinstance(node.func, ast.Attribute) and
                    is_driver(node.func.value, in_driver)):
                found.append(Call(name, node, node.func.attr))
    return found


def problems(cls):
    """Return the defects of a driver class as texts."""
    found = []
    for name, signatures in sorted(declarations(cls).items()):
        actual = signature(cls, name)
        if actual is None:
            # Optional features have their own interfaces. The methods of the
            # core and of a claimed interface are required.
            owners = [owner for owner in signatures if owner in INTERFACES]
            if owners and not isinstance(
                    inspect.getattr_static(cls, name, None), property):
                found.append('%s: declared by %s, but missing'
                             % (name, owners[0].__name__))
            continue
        # Cinder's declarations differ in places (context or ctxt): the
        # method has to match one of them completely.
        wrong = {owner: differences(declared, actual)
                 for owner, declared in signatures.items()}
        if all(wrong.values()):
            owner, what = min(wrong.items(), key=lambda item: len(item[1]))
            found.append('%s: %s (as %s.%s declares it)'
                         % (name, ', '.join(what), owner.__module__,
                            owner.__name__))
    for call in calls():
        actual = signature(cls, call.method)
        if actual is not None:
            wrong = call.fits(actual)
            if wrong:
                found.append('%s: %s' % (call, wrong))
    return found


class InterfacesTestCase(testtools.TestCase):

    def test_driver(self):
        module, name = DRIVER.rsplit('.', 1)
        cls = getattr(importlib.import_module(module), name)
        self.assertEqual([], problems(cls))

    def test_driver_is_registered(self):
        """Cinder lists the drivers with its decorator."""
        module, name = DRIVER.rsplit('.', 1)
        cls = getattr(importlib.import_module(module), name)
        self.assertIn(cls, interface._volume_register)
        self.assertTrue(issubclass(cls, volume_driver.VolumeDriverCore))
        for attribute in ('VERSION', 'CI_WIKI_NAME', 'get_driver_options'):
            self.assertTrue(getattr(cls, attribute, None), attribute)


class TheTestItselfTestCase(testtools.TestCase):
    """These checks, on a correct class and on classes with faults."""

    def _wrong(self, **methods):
        cls = type('Planted', (lvm.LVMVolumeDriver,), methods)
        return problems(cls)

    def assertNoticed(self, name, words, **methods):
        found = self._wrong(**methods)
        self.assertTrue([line for line in found
                         if line.startswith(name) and words in line],
                        'not noticed; found: %s' % found)

    def test_calls_are_found(self):
        found = {}
        for call in calls():
            found.setdefault(call.method, []).append(call)
        for name in ('create_volume', 'delete_volume', 'create_export',
                     'initialize_connection', 'terminate_connection',
                     'ensure_export', 'extend_volume', 'create_snapshot',
                     'create_volume_from_snapshot', 'clone_image',
                     'copy_image_to_volume', 'manage_existing',
                     'update_migrated_volume', 'revert_to_snapshot',
                     'get_volume_stats', 'migrate_volume'):
            self.assertIn(name, sorted(found))
        self.assertTrue([call for call in found['terminate_connection']
                         if 'force' in call.keywords])

    def test_cinders_own_driver_passes(self):
        self.assertEqual([], problems(lvm.LVMVolumeDriver))

    def test_right_overrides_pass(self):
        def terminate_connection(self, volume, connector, **kwargs):
            pass

        def create_volume(self, volume):
            pass

        def delete_snapshot(self, snapshot, really=True):
            pass

        self.assertEqual([], self._wrong(
            terminate_connection=terminate_connection,
            create_volume=create_volume, delete_snapshot=delete_snapshot))

    def test_missing_method(self):
        class Bare:
            def do_setup(self, context):
                pass

        found = problems(Bare)
        self.assertTrue([line for line in found
                         if line.startswith('create_volume: declared')])

    def test_renamed_parameter(self):
        def create_volume(self, vol):
            pass

        self.assertNoticed('create_volume', 'volume is called vol',
                           create_volume=create_volume)

    def test_missing_parameter(self):
        def initialize_connection(self, volume):
            pass

        self.assertNoticed('initialize_connection', 'connector is missing',
                           initialize_connection=initialize_connection)

    def test_exchanged_parameters(self):
        def terminate_connection(self, connector, volume, **kwargs):
            pass

        self.assertNoticed('terminate_connection', 'is called',
                           terminate_connection=terminate_connection)

    def test_further_required_parameter(self):
        def delete_volume(self, volume, force):
            pass

        self.assertNoticed('delete_volume', 'force is asked for as well',
                           delete_volume=delete_volume)

    def test_changed_default(self):
        def get_volume_stats(self, refresh=True):
            pass

        self.assertNoticed('get_volume_stats', 'default of refresh',
                           get_volume_stats=get_volume_stats)

    def test_lost_default(self):
        def get_volume_stats(self, refresh):
            pass

        self.assertNoticed('get_volume_stats', 'default of refresh',
                           get_volume_stats=get_volume_stats)

    def test_keyword_that_the_manager_uses(self):
        def terminate_connection(self, volume, connector):
            pass

        self.assertNoticed('terminate_connection at cinder.volume.manager',
                           'force',
                           terminate_connection=terminate_connection)

    def test_decorator_that_hides_the_parameters(self):
        def hide(function):
            def hidden(self, *args, **kwargs):
                return function(self, *args, **kwargs)
            return hidden

        @hide
        def create_snapshot(self, snapshot):
            pass

        self.assertNoticed('create_snapshot', 'snapshot is missing',
                           create_snapshot=create_snapshot)
