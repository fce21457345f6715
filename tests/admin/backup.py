# SPDX-License-Identifier: Apache-2.0
"""Save and restore the rows of a volume, like a restored database."""

from lab import command
from lab import database

_CLIENT = ['--no-defaults', '-u', 'root', '--socket=%s' % database.SOCKET]
#: Selects the user's row and its placeholders, also deleted ones.
_ROWS = "id = '{0}' OR display_name = 'dmclone move of {0}'"
_ATTACHMENTS = "volume_id = '{0}'"


def _dump(table, where):
    return command.run([
        'mariadb-dump', *_CLIENT, '--no-create-info', '--complete-insert',
        '--skip-triggers', '--where=' + where, 'cinder', table])


def take(volume_id):
    """Return a dump of all rows of a volume."""
    return (_dump('volumes', _ROWS.format(volume_id)) +
            _dump('volume_attachment', _ATTACHMENTS.format(volume_id)))


def put_back(volume_id, backup):
    """Replace the rows of a volume with those of a dump."""
    database.execute(
        'SET FOREIGN_KEY_CHECKS = 0; DELETE FROM volume_attachment WHERE %s; '
        'DELETE FROM volumes WHERE %s;\n%s' % (
            _ATTACHMENTS.format(volume_id), _ROWS.format(volume_id), backup))
