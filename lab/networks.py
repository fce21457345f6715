# SPDX-License-Identifier: Apache-2.0
"""A minimal network endpoint, which Nova needs for servers without networks.

It has no network, port or group. Networks are not part of this project;
servers of the laboratory have none.
"""

import json


def application(environ, start_response):
    """Answer each listing with an empty list, other requests with 404."""
    parts = environ['PATH_INFO'].removesuffix('.json').strip('/').split('/')
    if environ['REQUEST_METHOD'] == 'GET' and len(parts) == 2:
        status, body = '200 OK', {parts[1].replace('-', '_'): []}
    elif parts == ['']:
        status, body = '200 OK', {'versions': []}
    else:
        status, body = '404 Not Found', {'NeutronError': {
            'type': 'NotFound', 'detail': '',
            'message': 'the laboratory has no networks'}}
    start_response(status, [('Content-Type', 'application/json')])
    return [json.dumps(body).encode()]
