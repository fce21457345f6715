# SPDX-License-Identifier: Apache-2.0
"""Volume types for retypes."""

EQUAL, OTHER = 'dmclone.equal', 'dmclone.other'
_SPECS = {EQUAL: {'volume_backend_name': 'dmclone'},
          OTHER: {'volume_backend_name': 'dmclone', 'lab:note': 'other'}}


def make(user):
    """Create the types unless they exist."""
    there = {each['name'] for each in
             user.as_admin('GET', '/types')['volume_types']}
    for name in _SPECS.keys() - there:
        user.as_admin('POST', '/types', {'volume_type': {
            'name': name, 'extra_specs': _SPECS[name]}})
