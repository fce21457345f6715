# SPDX-License-Identifier: Apache-2.0
"""Leftovers on nodes and in the database, with and without volumes."""

import re

from lab.common import pools

#: Prints the devices of volumes. Those below the tails of clones stay until
#: the node goes down, with Linux 6.1 a loop device, too.
DEVICES = 'dmsetup ls | grep -v -e ^dmclone-anchor -e ^dmclone-zeros || true'

# One command, so that a check costs one round trip to a node. Each line that
# it prints is a leftover if there are no volumes.
_NODE = '(%s) 2>/dev/null' % DEVICES + r""" | grep -v 'No devices' |
    sed 's/^/mapping /'
lvs --noheadings -o vg_name,lv_name,lv_tags 2>/dev/null | sed 's/^ */volume /'
iscsiadm -m session 2>/dev/null | sed 's/^/session /'
iscsiadm -m node 2>/dev/null | sed 's/^/iscsi node /'
tgtadm --op show --mode target 2>/dev/null | grep '^Target' | sed 's/^/tgt /'
ls /sys/kernel/config/target/iscsi 2>/dev/null | grep ^iqn | sed 's/^/lio /'
ls /sys/kernel/config/target/core 2>/dev/null | grep iblock_ | sed 's/^/lio /'
ls /sys/block | grep '^sd' | sed 's/^/disk /'
find /var/lib/cinder/volumes -type f 2>/dev/null | sed 's/^/target file /'
losetup --noheadings -O NAME,BACK-FILE 2>/dev/null | grep -v dmclone-anchor |
    sed 's/^/loop /'
true
"""

#: The lines about a thin pool, which stays in a laboratory with thin volumes.
_OF_POOL = re.compile(r'mapping %s|volume %s' % (
    pools.POOL.replace('-', '--').replace('/', '-'),
    pools.POOL.replace('/', r'\s+') + r'\b'))

_ROWS = {
    'volume row': "SELECT id, host, status, migration_status, "
                  "replication_driver_data, provider_location FROM volumes "
                  "WHERE deleted = 0",
    'attachment row': "SELECT id, volume_id FROM volume_attachment "
                      "WHERE deleted = 0",
    'snapshot row': "SELECT id, volume_id FROM snapshots WHERE deleted = 0"}


def placeholders(lab, volume_id):
    """Return the ids of a volume's placeholders."""
    return [row[0] for row in lab.sql(
        "SELECT id FROM volumes WHERE deleted = 0 AND "
        "migration_status = 'dmclone:%s'" % volume_id)]


def volumes(node):
    """Return the names of a node's logical volumes, without its thin pool."""
    return [name for name in node.run('lvs --noheadings -o lv_name').split()
            if name != pools.NAME]


def devices(node):
    """Return the lines about a node's devices of volumes, and metadata."""
    return node.run('(%s; lvs) | grep dmclone || true' % DEVICES)


def metadata(node):
    """Return the name of the metadata of a node's only clone."""
    name, = [name for name in volumes(node) if 'metadata' in name]
    return name


def find(lab):
    """Return one line per leftover on any node or in the database."""
    found = []
    for node in lab.nodes.values():
        lines = node.run(_NODE).splitlines()
        found += ['%s: %s' % (node.name, line) for line in lines if line and
                  not (lab.settings.thin and _OF_POOL.match(line))]
    for kind, statement in _ROWS.items():
        found += ['%s: %s' % (kind, row) for row in lab.sql(statement)]
    return found


def beside_volumes(lab):
    """Return one line per leftover that does not belong to an idle volume.

    The volumes may be attached on their homes. A volume that has moved has the
    tag of an opened logical volume: without it a restored database could make
    it look like an unused destination.
    """
    expected = []
    for volume_id, name_id, host in lab.sql(
            "SELECT id, COALESCE(_name_id, id), host FROM volumes "
            "WHERE deleted = 0 AND "
            "COALESCE(migration_status, 'success') = 'success'"):
        node = host.partition('@')[0]
        expected += [
            r"volume row: \('%s', .*, (None|'success'), None, None\)"
            % volume_id,
            r'%s: mapping dmclone-%s\s.*' % (node, name_id),
            r'%s: mapping \S+-volume--%s\s.*' % (
                node, name_id.replace('-', '--')),
            r'%s: volume \S+ volume-%s%s' % (
                node, name_id, '' if name_id == volume_id else
                r'\s+dmclone.opened=' + volume_id)]
    at_rest = re.compile('|'.join([*expected, 'attachment row: .*']))
    return [line for line in find(lab) if not at_rest.fullmatch(line.strip())]
