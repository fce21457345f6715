# SPDX-License-Identifier: Apache-2.0
"""Users, catalog and volume type, made through the real APIs.

Runs inside the namespace with the environment's Python.
"""

import openstack

from tests.lab import config
from tests.lab import paths


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
                            ('image', 'glance', config.GLANCE)):
        service = identity.create_service(type=kind, name=name)
        for interface in ('public', 'internal', 'admin'):
            identity.create_endpoint(
                service_id=service.id, interface=interface, url=url,
                region_id=config.REGION)


def _connect():
    settings = str(paths.STATE / 'clouds.yaml')
    loader = openstack.config.OpenStackConfig(config_files=[settings])
    return openstack.connection.Connection(config=loader.get_one('admin'))


def main():
    identity = _connect().identity
    _user(identity, 'cinder', 'service', ['admin', 'service'])
    _user(identity, 'glance', 'service', ['admin', 'service'])
    _user(identity, 'demo', 'demo', ['member'])
    _endpoints(identity)
    # A connection keeps the catalog that it saw first.
    _connect().block_storage.create_type(
        name='dmclone', extra_specs={'volume_backend_name': 'dmclone'})


if __name__ == '__main__':
    main()
