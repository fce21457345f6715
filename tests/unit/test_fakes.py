# SPDX-License-Identifier: Apache-2.0
"""The fakes are called the way the real classes and functions are."""

import functools
import inspect
import operator

from cinder.brick.local_dev import lvm
import testtools
import tooz.locking

from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import initiator
from dmclone_driver.node.targets import base
from dmclone_driver import privsep
from dmclone_driver.privsep import block
from dmclone_driver.privsep import command
from tests.unit.fakes import cloud
from tests.unit.fakes import coordination
from tests.unit.fakes import kernel
from tests.unit.fakes import network
from tests.unit.fakes import storage

CLASSES = (
    (network.Initiator, initiator.Initiator, ()),
    (network.Target, base.SourceTarget, ('reboot', 'forget')),
    (storage.Group, lvm.LVM, (
        'vg_size', 'vg_free_space', 'vg_thin_pool_size',
        'vg_thin_pool_free_space', 'vg_provisioned_capacity')),
    (coordination.Lock, tooz.locking.Lock, ()),
)

FUNCTIONS = (
    *((getattr(kernel.Kernel, fake), operator.attrgetter(name)(privsep))
      for name, fake in cloud.KERNEL.items()),
    (storage.Lvm.lvm, command.lvm),
    *((getattr(kernel.Kernel, name), getattr(block, name))
      for name in cloud.BLOCK),
    *((getattr(kernel.Kernel, '_' + fake), getattr(sysfs, name))
      for name, fake in cloud.SYSFS.items()),
)


def parameters(function):
    """Return (name, kind, default) of each parameter but self."""
    if isinstance(function, functools.partial):
        # A privileged function, see oslo_privsep.priv_context.
        function, = function.args
    return [(parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name != 'self']


def difference(fake, real):
    """Return why a caller of a real function can't call its fake, or None.

    A fake may lack optional parameters that the driver does not pass.
    """
    mine, its = parameters(fake), parameters(real)
    if mine != its[:len(mine)]:
        return '%s instead of %s' % (mine, its)
    lacking = [name for name, _kind, default in its[len(mine):]
               if default is inspect.Parameter.empty]
    return lacking and '%s missing' % lacking or None


def differences(fake, real, own):
    """Return what is wrong with a fake class.

    :param own: public names of the fake that the real class lacks
    """
    found = {}
    for name in vars(fake):
        if name.startswith('_') or name in own:
            continue
        if not hasattr(real, name):
            found[name] = 'not in %s' % real.__name__
            continue
        wrong = difference(getattr(fake, name), getattr(real, name))
        if wrong:
            found[name] = wrong
    return found


class FakesTestCase(testtools.TestCase):
    """A change of an interface is a change of its fake, too."""

    def test_classes(self):
        for fake, real, own in CLASSES:
            self.assertEqual({}, differences(fake, real, own))

    def test_functions(self):
        for fake, real in FUNCTIONS:
            self.assertIsNone(difference(fake, real), str(real))

    def test_whole_interface(self):
        """All that the driver calls is in the fake."""
        wanted = {name for name, member in vars(initiator.Initiator).items()
                  if not name.startswith('_')}
        self.assertEqual(set(), wanted - set(vars(network.Initiator)))

    def test_differences_are_found(self):
        class Real:
            def one(self, first, second=None):
                pass

            def two(self, first):
                pass

        class Fake:
            def one(self, other):
                pass

            def two(self):
                pass

            def three(self):
                pass

            def own(self):
                pass

        self.assertEqual(['one', 'three', 'two'],
                         sorted(differences(Fake, Real, ('own',))))
