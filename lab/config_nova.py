# SPDX-License-Identifier: Apache-2.0
"""The settings of Nova, Placement and libvirt, as dictionaries or text."""

import uuid

from lab import config
from lab import paths

NODE_FILE = '/etc/nova/nova.conf'


def placement():
    return {
        'DEFAULT': {'debug': 'True'},
        'placement_database': config.database('placement'),
        'api': {'auth_strategy': 'keystone'},
        'keystone_authtoken': config.auth_token('placement'),
        'oslo_concurrency': {'lock_path': paths.STATE / 'locks'}}


def _nova(state_path):
    """Return the settings of Nova's services on every host."""
    return {
        'DEFAULT': {
            'debug': 'True', 'log_options': 'False',
            'state_path': state_path, 'transport_url': config.TRANSPORT,
            'rpc_response_timeout': '60', 'long_rpc_timeout': '180',
            'report_interval': '5', 'service_down_time': '30'},
        'api': {'auth_strategy': 'keystone'},
        'keystone_authtoken': config.auth_token('nova'),
        'service_user': dict(config.credentials('nova'),
                             send_service_user_token='True'),
        'placement': config.credentials('nova'),
        'neutron': config.credentials('nova'),
        'cinder': dict(config.credentials('nova'),
                       catalog_info='block-storage:cinder:internalURL'),
        'glance': {'api_servers': config.GLANCE},
        'key_manager': config.KEY_MANAGER['nova'],
        'oslo_concurrency': {'lock_path': '%s/locks' % state_path},
        'oslo_messaging_rabbit': config.RABBIT}


def nova_control():
    """Return the settings of the API, the conductor and the scheduler."""
    settings = _nova(paths.STATE / 'nova')
    settings['DEFAULT'].update(host='control', osapi_compute_workers='1')
    settings['database'] = config.database('nova')
    settings['api_database'] = config.database('nova_api')
    settings['conductor'] = {'workers': '1'}
    settings['scheduler'] = {'workers': '1',
                             'discover_hosts_in_cells_interval': '5'}
    settings['quota'] = dict.fromkeys(
        ('instances', 'cores', 'ram', 'server_groups'), '-1')
    return settings


def nova_node(name, ip):
    """Return the default settings of nova-compute on a node."""
    settings = _nova('/var/lib/nova')
    settings['DEFAULT'].update(
        host=name, my_ip=ip, log_file='/var/log/lab/nova-compute.log',
        compute_driver='libvirt.LibvirtDriver',
        instances_path='/var/lib/nova/instances',
        instance_usage_audit='False', resume_guests_state_on_host_boot='True',
        vif_plugging_is_fatal='False', vif_plugging_timeout='0',
        reserved_host_memory_mb='0', reserved_host_disk_mb='0',
        ram_allocation_ratio='4', cpu_allocation_ratio='16',
        force_raw_images='True', block_device_allocate_retries='120')
    settings['libvirt'] = {
        'virt_type': 'qemu', 'cpu_mode': 'none',
        'live_migration_scheme': 'tcp', 'live_migration_inbound_addr': ip,
        'live_migration_uri': 'qemu+tcp://%s/system',
        'live_migration_tunnelled': 'False',
        'hw_machine_type': 'x86_64=pc', 'num_pcie_ports': '0',
        'device_detach_attempts': '8', 'device_detach_timeout': '20'}
    # The disk of a server with its own kernel has no format that Nova knows.
    settings['workarounds'] = {'disable_deep_image_inspection': 'True'}
    settings['vnc'] = settings['spice'] = {'enabled': 'False'}
    helper = '%s/bin/privsep-helper --config-file %s' % (
        paths.VENV, NODE_FILE)
    for section in ('nova_sys_admin', 'privsep_osbrick', 'vif_plug_ovs',
                    'vif_plug_linux_bridge'):
        settings[section] = {'helper_command': helper}
    return settings


def libvirtd(name):
    """Return the text of libvirtd.conf: open to other nodes, over TCP."""
    return '\n'.join((
        'listen_tls = 0', 'listen_tcp = 1', 'auth_tcp = "none"',
        'auth_unix_rw = "none"', 'unix_sock_group = "root"',
        # Otherwise all nodes would have the same UUID.
        'host_uuid = "%s"' % uuid.uuid5(uuid.NAMESPACE_DNS, name),
        'log_outputs = "3:file:/var/log/lab/libvirtd.log"', ''))


#: The text of qemu.conf: everything as root, and no other daemon.
QEMU = '\n'.join((
    'user = "root"', 'group = "root"', 'dynamic_ownership = 0',
    'remember_owner = 0', 'security_driver = "none"', 'namespaces = []',
    'cgroup_controllers = []', 'stdio_handler = "file"', ''))
