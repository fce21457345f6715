# SPDX-License-Identifier: Apache-2.0
"""The settings of Tempest, as dictionaries: what the laboratory has."""

from lab import config

#: What the pools of a backend report: {driver: (vendor, protocol)}.
REPORTED = {'dmclone': ('dmclone_driver', 'local'),
            'lvm': ('Open Source', 'iSCSI')}
# A node is slow, and guests are emulated.
_SECONDS = '600'


def tempest(driver, cloud, nova, nodes, folder):
    """Return all settings.

    They are the same with both drivers, except for what the backend reports.

    :param cloud: the ids of images and flavors, see cloud.py
    :param nova: whether there are instances
    :param nodes: the number of nodes
    :param folder: of the log and of locks
    """
    # There are no networks, but many classes are skipped without Neutron
    # though they create none. lab.networks answers what they ask.
    available = {'nova': nova, 'neutron': True, 'cinder': True,
                 'glance': True, 'swift': False, 'horizon': False}
    return {
        'DEFAULT': {'debug': 'True', 'log_dir': folder,
                    'log_file': 'tempest.log'},
        'oslo_concurrency': {'lock_path': folder / 'locks'},
        'auth': {'use_dynamic_credentials': 'True',
                 'create_isolated_networks': 'False',
                 'tempest_roles': 'member',
                 'admin_username': 'admin', 'admin_project_name': 'admin',
                 'admin_password': config.PASSWORD,
                 'admin_domain_name': 'Default'},
        'identity': {'auth_version': 'v3', 'uri_v3': config.KEYSTONE,
                     'region': config.REGION, 'http_timeout': '300'},
        'identity-feature-enabled': {'api_v2': 'False',
                                     'api_v2_admin': 'False'},
        'service_available': available,
        'validation': {'run_validation': 'False'},
        'network-feature-enabled': {'floating_ips': 'False'},
        'image': {'build_timeout': _SECONDS},
        **_compute(cloud, nodes), **_volume(driver)}


def _compute(cloud, nodes):
    return {
        'compute': dict(cloud, min_compute_nodes=nodes,
                        build_timeout=_SECONDS, max_microversion='latest'),
        'compute-feature-enabled': {
            'volume_multiattach': 'True',
            'volume_backed_live_migration': 'True',
            'block_migration_for_live_migration': 'True',
            # The nodes have no program that makes images of CDs.
            'config_drive': 'False',
            'interface_attach': 'False'}}


def _volume(driver):
    vendor, protocol = REPORTED[driver]
    return {
        'volume': {'build_timeout': _SECONDS, 'max_microversion': 'latest',
                   'vendor_name': vendor, 'storage_protocol': protocol,
                   'backend_names': 'dmclone,lvm', 'backup_driver': 'posix'},
        'volume-feature-enabled': {
            'multi_backend': 'True', 'backup': 'True',
            'manage_volume': 'True', 'manage_snapshot': 'True',
            'volume_revert': 'True', 'extend_attached_volume': 'True',
            'extend_attached_encrypted_volume': 'True'}}
