# SPDX-License-Identifier: Apache-2.0
"""The settings of all services as dictionaries, and their INI files."""

from lab import etcd
from lab import network
from lab import paths

PASSWORD = 'lab'
REGION = 'lab'
KEYSTONE = 'http://%s:5000/v3' % network.CONTROL
CINDER = 'http://%s:8776/v3' % network.CONTROL
GLANCE = 'http://%s:9292' % network.CONTROL
NOVA = 'http://%s:8774/v2.1' % network.CONTROL
PLACEMENT = 'http://%s:8778' % network.CONTROL
NETWORKS = 'http://%s:9696' % network.CONTROL
TRANSPORT = 'rabbit://lab:%s@%s:5672/' % (PASSWORD, network.CONTROL)
DRIVERS = {
    'dmclone': 'dmclone_driver.driver.DMCloneVolumeDriver',
    'lvm': 'cinder.volume.drivers.lvm.LVMVolumeDriver',
}
# A node without power must not consume messages for long.
RABBIT = {'heartbeat_timeout_threshold': '20'}
# One key for all encrypted volumes, known to both services.
KEY_MANAGER = {
    name: {'backend': name + '.keymgr.conf_key_mgr.ConfKeyManager',
           'fixed_key': 32 * '1f'} for name in ('cinder', 'nova')}
_HELPERS = {'tgt': 'tgtadm', 'lio': 'lioadm'}
_NODE_FILE = '/etc/cinder/cinder.conf'


def merged(settings, changes):
    """Return settings with changes applied; None removes an option."""
    result = {section: dict(options) for section, options in settings.items()}
    for section, options in changes.items():
        result.setdefault(section, {}).update(options)
    return {section: {key: value for key, value in options.items()
                      if value is not None}
            for section, options in result.items()}


def write(path, settings):
    """Write settings as an INI file."""
    lines = []
    for section, options in settings.items():
        lines.append('[%s]' % section)
        lines += ['%s = %s' % item for item in options.items()] + ['']
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(lines))


def database(name):
    """Return the section for a database of the laboratory's server."""
    return {'connection': 'mysql+pymysql://lab:%s@%s/%s?charset=utf8' % (
        PASSWORD, network.CONTROL, name)}


def credentials(user):
    """Return the options with which a service authenticates itself."""
    return {'auth_type': 'password', 'auth_url': KEYSTONE,
            'username': user, 'password': PASSWORD,
            'user_domain_name': 'Default', 'project_name': 'service',
            'project_domain_name': 'Default', 'region_name': REGION}


def auth_token(user):
    """Return the section with which a service checks its users' tokens."""
    return dict(credentials(user), www_authenticate_uri=KEYSTONE,
                service_token_roles_required='True',
                service_token_roles='service')


def keystone():
    folder = paths.STATE / 'keystone'
    return {
        'DEFAULT': {'debug': 'False',
                    'log_file': paths.LOGS / 'keystone.log'},
        'database': database('keystone'),
        'fernet_tokens': {'key_repository': folder / 'fernet-keys'},
        'credential': {'key_repository': folder / 'credential-keys'},
        'token': {'expiration': '86400'},
        # The least: with the default each login takes a processor for 0.3 s.
        'identity': {'password_hash_rounds': '4'},
        # In its only process; otherwise each check of a token is many queries.
        'cache': {'enabled': 'True', 'backend': 'dogpile.cache.memory'}}


def glance():
    folder = paths.STATE / 'images'
    return {
        'DEFAULT': {'debug': 'True', 'log_file': paths.LOGS / 'glance.log',
                    'enabled_backends': 'disk:file',
                    'node_staging_uri': 'file://%s' % (folder / 'staging')},
        'database': database('glance'),
        'glance_store': {'default_backend': 'disk'},
        'disk': {'filesystem_store_datadir': folder / 'store'},
        'os_glance_staging_store': {
            'filesystem_store_datadir': folder / 'staging'},
        'os_glance_tasks_store': {
            'filesystem_store_datadir': folder / 'tasks'},
        'keystone_authtoken': auth_token('glance'),
        'oslo_concurrency': {'lock_path': paths.STATE / 'locks'},
        'paste_deploy': {
            'flavor': 'keystone',
            'config_file': paths.VENV / 'etc/glance/glance-api-paste.ini'}}


def _cinder(log_file, state_path, coordination):
    """Return the settings of Cinder's services on every host."""
    settings = {
        'DEFAULT': {
            'debug': 'True', 'log_file': log_file, 'state_path': state_path,
            'log_options': 'False',     # it would log 1000 lines per start
            'auth_strategy': 'keystone',
            'transport_url': TRANSPORT,
            'rpc_response_timeout': '60',
            'report_interval': '5', 'service_down_time': '30',
            # Otherwise a start clears volumes before the service is ready.
            'volume_service_inithost_offload': 'True',
            'default_volume_type': 'dmclone',
            'glance_api_servers': GLANCE,
            'allowed_direct_url_schemes': '',
            'api_paste_config': paths.VENV / 'etc/cinder/api-paste.ini',
            'resource_query_filters_file':
                paths.VENV / 'etc/cinder/resource_filters.json',
            'quota_volumes': '200', 'quota_snapshots': '200',
            'quota_gigabytes': '100000', 'quota_backups': '200',
            'quota_backup_gigabytes': '100000'},
        'database': database('cinder'),
        'keystone_authtoken': auth_token('cinder'),
        'service_user': dict(credentials('cinder'),
                             send_service_user_token='True'),
        'oslo_concurrency': {'lock_path': '%s/locks' % state_path},
        'key_manager': KEY_MANAGER['cinder'],
        'oslo_messaging_rabbit': RABBIT}
    if coordination == 'etcd':
        settings['coordination'] = {'backend_url': etcd.BACKEND_URL}
    return settings


def cinder_control(coordination):
    settings = _cinder('', paths.STATE / 'cinder', coordination)
    del settings['DEFAULT']['log_file']     # each service has its own stderr
    settings['DEFAULT']['host'] = 'control'
    return settings


def _backend(name, group, ip, choices):
    return {
        'volume_backend_name': name,
        'volume_group': group,
        'volumes_dir': '/var/lib/cinder/volumes',
        'volume_clear': 'zero', 'volume_clear_size': '64',
        'target_helper': _HELPERS[choices.target],
        'target_protocol': 'iscsi', 'target_ip_address': ip,
        'target_prefix': 'iqn.2026-01.org.openstack:'}


def second_backend(ip, choices):
    """Return the section of a node's second backend, with Cinder's LVM."""
    return dict(_backend('lvm', 'cinder-metadata', ip, choices),
                volume_driver=DRIVERS['lvm'])


def cinder_node(name, ip, choices):
    """Return Cinder's default settings on a node."""
    settings = _cinder('/var/log/lab/cinder-volume.log', '/var/lib/cinder',
                       choices.coordination)
    both = choices.driver == 'both'
    settings['DEFAULT'].update(
        host=name, my_ip=ip,
        enabled_backends='dmclone,lvm' if both else 'dmclone',
        backup_driver='cinder.backup.drivers.posix.PosixBackupDriver',
        backup_posix_path='/var/lib/cinder/backup',
        # It is read at once, into memory.
        backup_file_size=str(32 << 20))
    settings['dmclone'] = _backend('dmclone', 'cinder-volumes', ip, choices)
    settings['dmclone']['volume_driver'] = DRIVERS[
        'dmclone' if both else choices.driver]
    if both or choices.driver == 'dmclone':
        # "auto" would be thin in an empty group.
        settings['dmclone'].update(
            lvm_type='thin' if choices.thin else 'default',
            report_discard_supported=str(choices.thin))
    if both:
        settings['lvm'] = second_backend(ip, choices)
    if choices.nova:
        # An administrator, who may live-migrate instances of all users.
        settings['nova'] = credentials('nova')
    if choices.package:
        # The user cinder may not write there; stderr has the same name.
        del settings['DEFAULT']['log_file']
        # Rootwrap, as Debian has it.
        return settings
    helper = '%s/bin/privsep-helper --config-file %s' % (
        paths.VENV, _NODE_FILE)
    for section in ('cinder_sys_admin', 'privsep_osbrick',
                    'dmclone_privileged'):
        settings[section] = {'helper_command': helper}
    return settings


def clouds():
    """Return the text of clouds.yaml, for clients of the laboratory."""
    lines = ['clouds:']
    # `cinder` is used as Nova: a service that acts for a user.
    # `operator` is an admin in a user's project.
    for name, user, project in (
            ('admin', 'admin', 'admin'), ('demo', 'demo', 'demo'),
            ('operator', 'admin', 'demo'), ('cinder', 'cinder', 'service')):
        lines += [
            '  %s:' % name, '    region_name: %s' % REGION, '    auth:',
            '      auth_url: %s' % KEYSTONE, '      username: %s' % user,
            '      password: %s' % PASSWORD,
            '      project_name: %s' % project,
            '      user_domain_name: Default',
            '      project_domain_name: Default']
    return '\n'.join(lines) + '\n'


def environment(user='admin'):
    """Return the environment of `openstack` for the laboratory."""
    return {'OS_AUTH_URL': KEYSTONE, 'OS_USERNAME': user,
            'OS_PASSWORD': PASSWORD, 'OS_PROJECT_NAME': user,
            'OS_USER_DOMAIN_NAME': 'Default',
            'OS_PROJECT_DOMAIN_NAME': 'Default',
            'OS_IDENTITY_API_VERSION': '3', 'OS_REGION_NAME': REGION,
            'OS_VOLUME_API_VERSION': '3',
            'OS_CLIENT_CONFIG_FILE': str(paths.STATE / 'clouds.yaml')}
