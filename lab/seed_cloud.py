# SPDX-License-Identifier: Apache-2.0
"""Users, catalog and volume type, made through the real APIs.

Runs inside the namespace with the environment's Python.
"""

import openstack

from lab import config
from lab import paths

# What a guest needs under QEMU, with its RAM disk.
GUEST_MIB = 128


def _user(identity, name, project, roles):
    domain = identity.find_domain('Default')
    project = (identity.find_project(project) or
               identity.create_project(name=project, domain_id=domain.id))
    user = (identity.find_user(name) or identity.create_user(
        name=name, domain_id=domain.id, password=config.PASSWORD))
    for role in roles:
        role = identity.find_role(role) or identity.create_role(name=role)
        identity.assign_project_role_to_user(project, user, role)


def _endpoints(identity):
    for kind, name, url in (('block-storage', 'cinder', config.CINDER),
                            ('image', 'glance', config.GLANCE),
                            ('compute', 'nova', config.NOVA),
                            ('placement', 'placement', config.PLACEMENT),
                            ('network', 'neutron', config.NETWORKS)):
        service = identity.create_service(type=kind, name=name)
        for interface in ('public', 'internal', 'admin'):
            identity.create_endpoint(
                service_id=service.id, interface=interface, url=url,
                region_id=config.REGION)


def connect():
    """A connection as the cloud's admin."""
    settings = str(paths.STATE / 'clouds.yaml')
    loader = openstack.config.OpenStackConfig(config_files=[settings])
    return openstack.connection.Connection(config=loader.get_one('admin'))


def main():
    identity = connect().identity
    _user(identity, 'cinder', 'service', ['admin', 'service'])
    _user(identity, 'glance', 'service', ['admin', 'service'])
    _user(identity, 'nova', 'service', ['admin', 'service'])
    _user(identity, 'placement', 'service', ['admin', 'service'])
    _user(identity, 'demo', 'demo', ['member'])
    _user(identity, 'admin', 'demo', ['admin'])
    _endpoints(identity)
    # A connection keeps the catalog that it saw first.
    cloud = connect()
    for name in ('dmclone', 'lvm'):
        cloud.block_storage.create_type(
            name=name, extra_specs={'volume_backend_name': name})
    for name, disk in (('guest', 1), ('guest.larger', 1)):
        cloud.compute.create_flavor(
            name=name, vcpus=1, disk=disk,
            ram=GUEST_MIB + 32 * (name != 'guest'))


if __name__ == '__main__':
    main()
