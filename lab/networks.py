# SPDX-License-Identifier: Apache-2.0
"""A minimal network endpoint, which Nova needs for servers without networks.

It has no network, port or group, and no quota. Networks are not part of this
project; servers of the laboratory have none.
"""

import json


def application(environ, start_response):
    """Answer each listing with an empty list, quotas with "no limit".

    Nova asks for the quota of ports if a server is to get all networks that
    there are (validate_networks in nova/network/neutron.py).
    """
    parts = environ['PATH_INFO'].removesuffix('.json').strip('/').split('/')
    if environ['REQUEST_METHOD'] == 'GET' and len(parts) == 2:
        status, body = '200 OK', {parts[1].replace('-', '_'): []}
    elif environ['REQUEST_METHOD'] == 'GET' and parts[1:2] == ['quotas']:
        status, body = '200 OK', {'quota': {'port': -1}}
    elif parts == ['']:
        status, body = '200 OK', {'versions': []}
    else:
        status, body = '404 Not Found', {'NeutronError': {
            'type': 'NotFound', 'detail': '',
            'message': 'the laboratory has no networks'}}
    start_response(status, [('Content-Type', 'application/json')])
    return [json.dumps(body).encode()]
