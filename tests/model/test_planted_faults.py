# SPDX-License-Identifier: Apache-2.0
"""The model detects faults that are planted into the driver.

If a fault is not detected, the model has lost a check.
"""

import dataclasses
import types
from unittest import mock

import ddt
import hypothesis

from dmclone_driver import driver
from dmclone_driver.move import attachments
from dmclone_driver.move import builder
from dmclone_driver.move import follower_records
from dmclone_driver.move import followers
from dmclone_driver.move import lookups
from dmclone_driver.move import maps
from dmclone_driver.move import marks
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import recovery
from dmclone_driver.move import released_sources
from dmclone_driver.move import reserve
from dmclone_driver.move import row_fields
from dmclone_driver.move import source
from dmclone_driver.move import transactions
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.metadata import lvm
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node import thin_maps
from dmclone_driver.privsep import block
from dmclone_driver.privsep import thin
from tests.model import database
from tests.model import life
from tests.model import machine
from tests.model import test_model

_terminate = driver.DMCloneVolumeDriver.terminate_connection
_ensure_linear = LocalVolume.ensure_linear
_recover = recovery.Recovery._recover
_rebuild = builder.Builder.rebuild
_find = lvm.LogicalVolumeMetadata.find
_settle = followers.Followers._settle
_reconnect = builder.Builder.reconnect
_unallocated = maps.Maps.unallocated
_export = source.Source.export
_release = released_sources.ReleasedSources._release
_make = marks.Marks.make
_copy = machine.Kernel.copy


def _released_while_read(self, context, placeholder_id):
    """Delete the data of a deleted volume although clones read it."""
    placeholder = lookups.placeholder(context, placeholder_id)
    if placeholder is not None and placeholder.of_deleted and (
            lookups.get(context, placeholder.volume_id) is None):
        with self._backend.lock(placeholder.volume_id):
            self._teardown.cut_loose(context, placeholder)
    return _release(self, context, placeholder_id)


def _linear_after_a_failed_commit(volume, lv):
    handle = volume.names.of(HANDLE)
    dmsetup.suspend(handle)
    dmsetup.load_and_resume(
        handle, table.Linear(table.sectors(lv.size), lv.path))
    dmsetup.remove(volume.names.of(CLONE))
    return True


@transactions.transaction()
def _exchange(session, volume_id, placeholder_id, *fields):
    volume, placeholder = transactions.lock(session, volume_id,
                                            placeholder_id)
    with mock.patch.object(row_fields, 'EXCHANGED', fields):
        row_fields.exchange(volume, placeholder)
    if '_name_id' in fields:
        volume.replication_driver_data = None
        placeholder.replication_driver_data = placeholders.record_of(
            placeholder).but(State.SWITCHED).text()


def _two_transactions(context, volume_id, placeholder_id):
    records.check_prepared(context, volume_id, placeholder_id)
    _exchange(context, volume_id, placeholder_id, 'host')
    _exchange(context, volume_id, placeholder_id, '_name_id',
              'provider_location', 'provider_auth')
    return True


@transactions.transaction()
def _set_name(session, volume_id, other_id):
    volume, other = transactions.lock(session, volume_id, other_id)
    volume._name_id = other._name_id


@transactions.transaction()
def _release_old(session, row_id, name_id):
    row, = transactions.lock(session, row_id)
    row._name_id = name_id
    row_fields.set_state(row, State.RELEASED)


def _revert_in_two_transactions(context, seen, revert_id):
    old = seen.name_id
    _set_name(context, seen.id, revert_id)
    _release_old(context, revert_id, old)
    return True


def _discard_with_the_attachment(self, volume, connector, **kwargs):
    names = Names(volume.name_id)
    source = lookups.placeholder(database.Context(), volume.name_id)
    gate = dmsetup.device(names.of(GATE))
    # The removal of a written clone waits at a closed gate.
    if source is not None and not LocalVolume(names).is_open() and not (
            gate and gate.suspended):
        # The tag of an opened logical volume would prevent it, too.
        with mock.patch.object(self._parts.teardown, 'refuse_opened'):
            self._parts.teardown.delete_destination(names, source)
        return True
    return _terminate(self, volume, connector, **kwargs)


def _read_only(names, lv, read_only=False):
    _ensure_linear(names, lv, read_only=True)


def _metadata_made_anew(self, names):
    found = _find(self, names)
    if found:
        block.zero_start(found[0], lvm.SUPERBLOCK)
    return found


def _rebuild_with_open_gate(self, names, passive=False):
    _rebuild(self, names)


def _placeholder_by_status(context, row_id):
    row = lookups.get(context, row_id)
    return (placeholders.Placeholder(row) if row is not None and
            placeholders.is_placeholder(row) and
            row.status == 'maintenance' else None)


def _recover_sealed(self, context, row, lv):
    if lv is not None:
        lv = dataclasses.replace(lv, tags=frozenset(
            tag for tag in lv.tags
            if not tag.startswith(logical_volumes.SEALED_TAG)))
    _recover(self, context, row, lv)


def _end_with_any_attachment(self, context, volume, connector):
    placeholder = lookups.placeholder(context, lookups.prepared_move(volume))
    if not (connector and placeholder and
            self.is_wanted(volume, placeholder)) or (
            attachments.attached_on(connector, placeholder.node)):
        return not self.roll_back(context, volume, 'planted')
    self.switch_over(context, volume)
    return True


def _snapshot_below(self, volume, snapshot):
    logical_volumes.take_snapshot(
        self._backend.logical_volume(Names(volume.name_id)),
        names_module.of_snapshot(snapshot.name))


def _serve_without_tag(self, row):
    with self._backend.lock(row.snapshot_id):
        path = self.ensure_device(self.find(row.snapshot_id))
        LocalVolume(Names(row.name_id)).ensure_read_only(
            path, block.size(path))


def _follow_early(self, context, names):
    row = follower_records.get(context, names.name_id)
    if row is None:
        return True
    lv = self._backend.logical_volume(names)
    if placeholders.state_of(row) == State.FOLLOWED or lv is None or (
            not lv.opened):
        return _settle(self, context, names)
    return self._follow(context, row, names, lv)


def _reconnect_later(self, context, names, placeholder, anew=False):
    if not anew:
        _reconnect(self, context, names, placeholder)


def _take_thin_without_flush(names, lv, snapshot_id, tags):
    logical_volumes.take_snapshot(lv, names_module.of_snapshot(
        'snapshot-' + snapshot_id), *tags)


def _merge_in_use(self, volume, mine, lv):
    self._backend.group.revert(lv.name)


#: {names of a source: its map before it was sealed}
_early_maps = {}


def _unallocated_before(self, context, placeholder_id, *args):
    """Return the map as it was when the source was exported."""
    names = Names(lookups.placeholder(context, placeholder_id).name_id)
    return _early_maps.get(names) or _unallocated(
        self, context, placeholder_id, *args)


def _export_with_map(self, context, row, initiator):
    """Read the map of a volume that is in use, too."""
    lv = self._backend.logical_volume(Names(row.name_id))
    if lv is not None and lv.thin and not lv.clone:
        number = logical_volumes.thin_id(lv)
        found = thin_maps.parse(thin.dump(
            'volumes-volumes--pool-tpool',
            '/dev/mapper/volumes-volumes--pool_tmeta', number, 60), number)
        _early_maps[Names(row.name_id)] = {
            'ranges': ','.join(map(str, thin_maps.unallocated(
                found, table.sectors(lv.size), 128))),
            'pages': 1, 'why': ''}
    _export(self, context, row, initiator)


def _mark_later(self, context, names, source):
    """Mark regions when the hydration is on."""
    LocalVolume(names).start_hydration()
    _make(self, context, names, source)


def _ranges_of_any(self, context, source, status, lv):
    """Return what a source has not allocated, whatever the pool is here."""
    answer = self._backend.client.unallocated(
        context, source.backend, source.id, status.length, status.region, 0,
        60)
    return thin_maps.inside(thin_maps.parse_page(answer['ranges'])
                            if answer['ranges'] else [], 1, status.total)


def _nothing_but_marks(volume):
    """Take a clone for unwritten whose regions are as many as are marked."""
    status = dmsetup.clone(volume.names.of(CLONE))
    lv = logical_volumes.find(volume.names.volume, 'volumes')
    return status is not None and not status.without(
        (lv.marked or 0) // (status.region * table.SECTOR)).hydrated


def _copied_without_space(self, name, region):
    """Count a region that a full pool has refused."""
    try:
        _copy(self, name, region)
    except machine.NoSpace:
        self.devices[name].own.bitmap.add(region)


class _Hasty(LocalVolume):
    """A volume that is never flushed."""

    def make_durable(self):
        """Do nothing."""


#: {fault: (replaced functions, replacement, pattern of the violation)}; if
#: several functions guard against a fault, all are replaced.
FAULTS = {
    'linear table after a suspend whose commit failed':
        ('node.devices.LocalVolume.make_linear', _linear_after_a_failed_commit,
         'its metadata is not safe'),
    'switchover in two transactions':
        ('move.records.switch_over', _two_transactions, 'is not on'),
    'hydration before the old writer is gone':
        ('node.devices.LocalVolume.seal', lambda volume, flush=True: True,
         'which is not sealed'),
    'written destination deleted as its attachment was deleted':
        ('driver.DMCloneVolumeDriver.terminate_connection',
         _discard_with_the_attachment, 'is not on'),
    'source deleted before the linear table is flushed':
        ('move.completion.block', types.SimpleNamespace(
            flush_disk=lambda path: None), 'was not flushed'),
    'source sealed but not flushed':
        ('node.devices.LocalVolume.make_durable', lambda volume: None,
         'a power cut would make|is junk'),
    'metadata made anew on recovery':
        ('node.metadata.lvm.LogicalVolumeMetadata.find', _metadata_made_anew,
         'zeroed again'),
    'gate opened without the tag for it':
        ('move.builder.Builder.rebuild', _rebuild_with_open_gate,
         'the logical volume has no tag|which is not sealed'),
    'chain without a limit':
        ('move.preflight.Preflight._refuse_long_chain',
         lambda self, volume, peer, sources: None, 'older homes'),
    'handle that is read-only after a reboot':
        ('node.devices.LocalVolume.ensure_linear', _read_only, 'refuse'),
}

#: Faults that are detected in histories with operators and lost answers:
#: {fault: ({function: replacement}, pattern of the violation)}.
FAULTS_WITH_HANDS = {
    'placeholder recognised by its status':
        # LVM's tags and the kernel protect the data all the same.
        ({'move.lookups.placeholder': _placeholder_by_status,
          # Otherwise the next periodic task puts the status back.
          'move.row_repairs.row_fields': types.SimpleNamespace(**{
              **vars(row_fields), 'status_columns': lambda found: {}})},
         'left over|not complete|is pending|older homes|to be removed'),
    'host that stays as something else has written it':
        ({'move.backend.Backend.correct': lambda self, context, row: None},
         'the volume cannot be used'),
    'home sealed under a guest as another attachment was deleted':
        ({'move.prepared_moves.PreparedMoves.end_attachment':
          _end_with_any_attachment}, 'refuses the writes of the guest'),
    'volume that does not save old content for its snapshots':
        ({'node.devices.LocalVolume._over_origin':
          lambda volume, segments: segments}, 'has lost its content'),
    'source deleted whose snapshots stay':
        (dict.fromkeys(('move.snapshots.Snapshots.of',
                        'node.deletion._has_snapshots'),
                       lambda *args, **kwargs: []),
         'has lost its content|is not on|is not complete'),
}

#: Faults that are detected in histories with a restored database.
FAULTS_OF_MEMORY = {
    'sealed source that can be written after a reboot':
        ('move.recovery.Recovery._recover', _recover_sealed,
         'is a second writer'),
    'clone cleared up whose move the database does not know':
        ('move.completion.Completion._is_known',
         lambda self, context, names, lv, locked: True, 'left over'),
    'home discarded that the database has forgotten':
        (('move.teardown.Teardown.refuse_opened '
          'move.prepared_moves.PreparedMoves._has_moved_away'),
         lambda *args: None, 'is not on'),
}


#: Faults that are detected in histories with snapshots and copies.
FAULTS_OF_SNAPSHOTS = {
    'snapshot taken below the clone':
        ('new_snapshots.NewSnapshots.take', _snapshot_below,
         'a snapshot has'),
    'snapshot taken but not flushed':
        ('new_snapshots.LocalVolume', _Hasty,
         'has lost its content|a power cut would make'),
    'snapshot served without the tag for its reader':
        ('move.snapshots.Snapshots.serve', _serve_without_tag,
         'is not on|is not complete|cannot be deleted|left over'),
    'snapshot deleted without a look at its readers':
        ('node.logical_volumes.LogicalVolume.readers', property(
            lambda lv: set()),
         'is not on|is not complete|cannot be deleted|left over'),
    'deletion of a snapshot that is not passed on':
        ('move.snapshots.Snapshots.delete',
         lambda self, context, snapshot: self._delete(snapshot.id),
         'left over'),
    'revert that merges below the snapshots of a clone':
        ('reverts.Reverts._can_merge',
         lambda self, mine, lv: lv.origin == mine.name and not mine.clone,
         'has lost its content|instead of|is not on|left over'),
    'follower taken for the snapshot before it is complete':
        ('move.followers.Followers._settle', _follow_early,
         'is not on|has lost its content|has no source|left over'),
    'follower that is never finished':
        ('move.follower_records.get', lambda context, name_id: None,
         'is not complete|left over'),
    'partly deleted volume taken for a complete one':
        ('node.logical_volumes.LogicalVolume.complete', property(
            lambda lv: lv.opened and not (
                lv.clone or
                lv.tagged(logical_volumes.COMPLETE_TAG) is not None)),
         'left over|cannot be deleted'),
}


#: Faults that are detected in histories with a revert at once.
FAULTS_OF_REVERTS = {
    'revert that is not flushed':
        ('reverts.LocalVolume', _Hasty, 'a power cut'),
    'revert in two transactions':
        ('move.revert_records.revert', _revert_in_two_transactions,
         'is not on|has no source|is not complete'),
    'interrupted revert that is not given up':
        ('move.revert_records.give_up', lambda context, revert_id: False,
         'is not complete|left over|cannot be deleted'),
}


#: Faults that are detected in histories with a clone that is deleted while
#: it hydrates and is read.
FAULTS_OF_DELETIONS = {
    'deletion that does not wait for the row':
        ('move.placeholders.Placeholder.of_deleted',
         property(lambda placeholder: False),
         'is not on|instead of|has no source|cannot be|after a power cut'),
    'deleted volume cut loose under its clones':
        ('move.released_sources.ReleasedSources._release',
         _released_while_read,
         'instead of|a power cut would make|after a power cut'),
}


#: Faults that are detected in histories of a copy that moves on.
FAULTS_OF_MOVING_ON = {
    'source taken for unwritten that was written':
        ('node.devices.LocalVolume.has_nothing_own', lambda volume: True,
         'instead of|a power cut would make|a snapshot has'),
    'bypassed source released before its snapshot is counted':
        ('move.builder.Builder.reconnect', _reconnect_later,
         'is not on|is not complete|cannot be|left over'),
}


#: Faults that are detected in the same histories with thin volumes.
FAULTS_OF_THIN_VOLUMES = {
    'blocks shared of a volume that is not complete':
        ('thin_clones.ThinClones.can_share',
         lambda self, lv: lv is not None and lv.thin and self._backend.thin,
         'a new volume has'),
    'thin snapshot taken below the clone':
        ('new_snapshots.NewSnapshots._take_above',
         lambda self, *args: self._take_thin(*args),
         'a snapshot has|a new volume has'),
    'thin snapshot that is not flushed':
        ('new_snapshots.NewSnapshots._take_thin',
         staticmethod(_take_thin_without_flush),
         'has lost its content|a power cut would make'),
    'thin clone that is not flushed':
        ('thin_clones.LocalVolume', _Hasty, 'a power cut would make|instead'),
    'thin snapshot that LVM may merge later':
        ('reverts.Reverts._merge', _merge_in_use, 'LVM may merge'),
}


#: Faults that are detected in histories with gaps in thin volumes.
FAULTS_OF_GAPS = {
    'map read before the seal':
        ({'move.maps.Maps.unallocated': _unallocated_before,
          'move.source.Source.export': _export_with_map},
         'is zero 0 instead of|a power cut would make block . zero 0'),
    'marked while it hydrates':
        ({'move.marks.Marks.make': _mark_later,
          'move.marks._may': lambda names: True,
          'node.devicemapper.marks.Marker._may': lambda marker: True},
         'is marked while it hydrates'),
    'marked on a thick volume':
        ({'node.logical_volumes.LogicalVolume.markable': property(
            lambda lv: True),
          'move.marks.Marks._room': lambda marks, names: reserve.Room(
              frozenset([names]), 1 << 40, 1 << 40),
          'move.marks.Marks._ranges': _ranges_of_any},
         'is marked on a thick volume'),
    'a guest that may discard above a clone':
        ({'node.devices.LocalVolume._over_origin':
          lambda volume, segments: segments},
         'a guest may discard'),
}


#: Faults that are detected in the same histories with pools that fill. One is
#: a fault of the simulated kernel: the model sees what a full pool could cost.
FAULTS_OF_FULL_POOLS = {
    'marked in a full pool':
        ({'move.marks.Marks._room': lambda marks, names: reserve.Room(
            frozenset([names]), 1 << 40, 1 << 40)},
         'is marked in a full pool'),
    'a full pool taken for written':
        ({'tests.model.machine.Kernel.copy': _copied_without_space},
         'is zero 0 instead of|a power cut would make block . zero 0'),
    'clone without the block that flushes need':
        ({'move.builder.Builder._allocate_first_block':
          lambda builder, names, lv: None},
         'is read-only in a full pool'),
}


#: Faults that are detected if a copy with gaps moves on.
FAULTS_OF_MARKS = {
    'marked regions left out of the evidence of writes':
        # A write to such a region changes no number of the kernel's.
        ('node.devices.LocalVolume.has_nothing_own', _nothing_but_marks,
         'instead of|a power cut would make|a snapshot has'),
    'marked where something was written before a power cut':
        ('node.thin_maps.common', lambda some, others: some,
         'instead of|a power cut would make'),
}


#: Faults that are detected in histories whose copies wait for each other.
FAULTS_OF_PACE = {
    'copy that never gets the turn of another one':
        ('move.pacer.Pacer.is_queued',
         lambda pacer, names: names in pacer._ready,
         'is not complete|left over|cannot be deleted'),
}


#: The seeds that have found the faults for which most seeds take long.
FIRST_SEEDS = {
    'home sealed under a guest as another attachment was deleted': 12,
    'home discarded that the database has forgotten': 13,
    'source deleted whose snapshots stay': 2,
    'chain without a limit': 2,
    'source sealed but not flushed': 106,
    'revert in two transactions': 13,
    'revert that merges below the snapshots of a clone': 53,
    'partly deleted volume taken for a complete one': 5,
    'blocks shared of a volume that is not complete': 4,
    'thin clone that is not flushed': 159,
    'thin snapshot that LVM may merge later': 3,
    'map read before the seal': 5,
    'marked where something was written before a power cut': 8,
    'marked in a full pool': 2,
    'a full pool taken for written': 3,
}


@ddt.ddt
class PlantedFaultsTestCase(test_model.ModelTestCase):
    """Each fault is detected within some thousand histories."""

    @ddt.data(*FAULTS)
    def test_is_found(self, name):
        self._find(test_model.Rules, name, *FAULTS[name])

    @ddt.data(*FAULTS_WITH_HANDS)
    def test_is_found_with_hands(self, name):
        faults, said = FAULTS_WITH_HANDS[name]
        self._find_any(test_model.HandsRules, name, faults, said)

    @ddt.data(*FAULTS_OF_MEMORY)
    def test_is_found_by_its_memory(self, name):
        self._find(test_model.ForgetfulRules, name, *FAULTS_OF_MEMORY[name])

    @ddt.data(*FAULTS_OF_SNAPSHOTS)
    def test_is_found_by_its_snapshots(self, name):
        self._find(test_model.SnapshotRules, name, *FAULTS_OF_SNAPSHOTS[name])

    @ddt.data(*FAULTS_OF_REVERTS)
    def test_is_found_by_a_revert(self, name):
        self._find(test_model.RevertRules, name, *FAULTS_OF_REVERTS[name])

    @ddt.data(*FAULTS_OF_DELETIONS)
    def test_is_found_by_a_deletion(self, name):
        self._find(test_model.DeletedRules, name, *FAULTS_OF_DELETIONS[name])

    @ddt.data(*FAULTS_OF_MOVING_ON)
    def test_is_found_as_it_moves_on(self, name):
        self._find(test_model.MovesOnRules, name, *FAULTS_OF_MOVING_ON[name])

    @ddt.data(*FAULTS_OF_THIN_VOLUMES)
    def test_is_found_with_thin_volumes(self, name):
        self._find(test_model.ThinRules, name, *FAULTS_OF_THIN_VOLUMES[name])

    @ddt.data(*FAULTS_OF_GAPS)
    def test_is_found_with_gaps(self, name):
        faults, said = FAULTS_OF_GAPS[name]
        self._find_any(test_model.SparseRules, name, faults, said)

    @ddt.data(*FAULTS_OF_FULL_POOLS)
    def test_is_found_with_full_pools(self, name):
        faults, said = FAULTS_OF_FULL_POOLS[name]
        self._find_any(test_model.FullRules, name, faults, said)

    @ddt.data(*FAULTS_OF_MARKS)
    def test_is_found_as_a_marked_copy_moves_on(self, name):
        self._find(test_model.SparseMovesOnRules, name,
                   *FAULTS_OF_MARKS[name])

    @ddt.data(*FAULTS_OF_PACE)
    def test_is_found_as_a_copy_waits(self, name):
        self._find(test_model.PacedRules, name, *FAULTS_OF_PACE[name])

    def _find(self, rules, name, path, fault, said):
        self._find_any(rules, name, dict.fromkeys(path.split(), fault), said)

    def _find_any(self, rules, name, faults, said):
        """Find a violation that several replaced functions cause.

        :param faults: {function: replacement}, of the driver or the model
        """
        class Rules(rules):
            def plant(self, stack):
                for path, fault in faults.items():
                    stack.enter_context(mock.patch(
                        path if path.startswith('tests.') else
                        'dmclone_driver.' + path, new=fault))

        # Which actions are frequent depends on the seed, so that with one of
        # them thousands of histories may not be enough.
        for seed in [FIRST_SEEDS.get(name, 1), *range(1, 51)]:
            try:
                test_model.run(Rules, seed, max_examples=100,
                               phases=[hypothesis.Phase.generate])
            except life.Violation as violation:
                self.assertRegex(str(violation), said)
                return
        self.fail('it is not detected')
