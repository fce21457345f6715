# SPDX-License-Identifier: Apache-2.0
"""The model finds what it is there for: each of these drivers has a fault.

A fault that is not found any more means that the model has gone blind.
"""

import types
from unittest import mock

import ddt
import hypothesis
from hypothesis import stateful

from dmclone_driver.devicemapper import dmsetup
from dmclone_driver.devicemapper import table
from dmclone_driver import driver
from dmclone_driver import handles
from dmclone_driver import identity
from dmclone_driver.metadata import lvm
from dmclone_driver.names import HANDLE
from dmclone_driver.names import Names
from dmclone_driver.privsep import block
from tests.model import database
from tests.model import history
from tests.model import test_model

_terminate = driver.DMCloneVolumeDriver.terminate_connection
_ensure_linear = handles.ensure_linear
_find = lvm.LogicalVolumeMetadata.find


def _load_before_suspend(names, lv):
    handle = names.of(HANDLE)
    if not dmsetup.clone(handle).complete:
        return False
    dmsetup.load(handle, table.Linear(table.sectors(lv.size), lv.path))
    dmsetup.suspend(handle)
    dmsetup.resume(handle)
    return True


def _linear_after_a_failed_commit(names, lv):
    handle = names.of(HANDLE)
    dmsetup.suspend(handle)
    dmsetup.load(handle, table.Linear(table.sectors(lv.size), lv.path))
    dmsetup.resume(handle)
    return True


@identity._transaction()
def _exchange(session, volume_id, placeholder_id, *fields):
    volume, placeholder = identity._lock(session, volume_id, placeholder_id)
    for field in fields:
        mine, other = getattr(volume, field), getattr(placeholder, field)
        if field == '_name_id':
            mine, other = mine or volume.id, other or placeholder.id
        setattr(volume, field, other)
        setattr(placeholder, field, mine)
    if '_name_id' in fields:
        volume.replication_driver_data = None
        placeholder.replication_driver_data = identity.record(
            placeholder).but(identity.COMMITTED).text()


def _two_transactions(context, volume_id, placeholder_id):
    identity.check_prepared(context, volume_id, placeholder_id)
    _exchange(context, volume_id, placeholder_id, 'host')
    _exchange(context, volume_id, placeholder_id, '_name_id',
              'provider_location', 'provider_auth')
    return True


def _discard_with_the_attachment(self, volume, connector, **kwargs):
    names = Names(volume.name_id)
    source = identity.placeholder(database.Context(), volume.name_id)
    if source is not None and not handles.is_open(names):
        self._teardown.discard(names, source)
        return True
    return _terminate(self, volume, connector, **kwargs)


def _read_only(names, lv, read_only=False):
    _ensure_linear(names, lv, read_only=True)


def _metadata_made_anew(self, names):
    found = _find(self, names)
    if found:
        block.zero_start(found[0], lvm.SUPERBLOCK)
    return found


#: {what: (what is replaced, by what, what the model says)}
FAULTS = {
    'load before suspend':
        ('handles.make_linear', _load_before_suspend,
         'loaded over a live clone'),
    'linear table after a suspend whose commit failed':
        ('handles.make_linear', _linear_after_a_failed_commit,
         'its bitmap not safe'),
    'switch of identities in two transactions':
        ('identity.commit', _two_transactions, 'is not on'),
    'hydration before the old writer is gone':
        ('handles.seal', lambda names, flush=True: True,
         'which is not sealed'),
    'written destination discarded as its attachment was deleted':
        ('driver.DMCloneVolumeDriver.terminate_connection',
         _discard_with_the_attachment, 'is not on'),
    'source deleted before the linear table is flushed':
        ('hydration.block', types.SimpleNamespace(
            flush_disk=lambda path: None), 'was not flushed'),
    'source sealed but not flushed':
        ('handles.make_durable', lambda names: None,
         'a power cut would make'),
    'metadata made anew on recovery':
        ('metadata.lvm.LogicalVolumeMetadata.find', _metadata_made_anew,
         'zeroed again'),
    'handle that is read-only after a reboot':
        ('handles.ensure_linear', _read_only, 'refuse'),
}


@ddt.ddt
class PlantedFaultsTestCase(test_model.ModelTestCase):
    """Each is found within some thousand lives."""

    @ddt.data(*FAULTS)
    def test_is_found(self, name):
        path, fault, said = FAULTS[name]

        @hypothesis.seed(1)
        class Life(test_model.Life):
            def plant(self, stack):
                stack.enter_context(mock.patch('dmclone_driver.' + path,
                                               new=fault))

        violation = self.assertRaises(
            history.Violation, stateful.run_state_machine_as_test, Life,
            settings=hypothesis.settings(
                test_model.SETTINGS, max_examples=5000,
                phases=[hypothesis.Phase.generate]))
        self.assertIn(said, str(violation))
