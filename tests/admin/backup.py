# SPDX-License-Identifier: Apache-2.0
"""A volume's rows as a database that is put back has them."""

from lab import command
from lab import database

_CLIENT = ['--no-defaults', '-u', 'root', '--socket=%s' % database.SOCKET]
#: Of the user's row and its placeholders, deleted ones too.
_ROWS = "id = '{0}' OR display_name = 'dmclone move of {0}'"
_ATTACHMENTS = "volume_id = '{0}'"


def _dump(table, where):
    return command.run([
        'mariadb-dump', *_CLIENT, '--no-create-info', '--complete-insert',
        '--skip-triggers', '--where=' + where, 'cinder', table])


def take(volume_id):
    """Return all that the database says of a volume."""
    return (_dump('volumes', _ROWS.format(volume_id)) +
            _dump('volume_attachment', _ATTACHMENTS.format(volume_id)))


def put_back(volume_id, backup):
    """Let the database say that again, and nothing newer."""
    database.execute(
        'SET FOREIGN_KEY_CHECKS = 0; DELETE FROM volume_attachment WHERE %s; '
        'DELETE FROM volumes WHERE %s;\n%s' % (
            _ATTACHMENTS.format(volume_id), _ROWS.format(volume_id), backup))
