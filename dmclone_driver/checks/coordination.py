# SPDX-License-Identifier: Apache-2.0
"""Check that the store of the volumes' locks can be used."""

import os
from urllib import parse

from cinder import coordination  # noqa: F401, registers its options
from oslo_config import cfg

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.i18n import _

CONF = cfg.CONF

NAME = 'locks'
#: The ports of tooz's drivers.
PORTS = {'consul': 8500, 'etcd3': 2379, 'memcached': 11211, 'mysql': 3306,
         'postgresql': 5432, 'redis': 6379, 'rediss': 6379,
         'kazoo': 2181, 'zookeeper': 2181}


def check(host: Host) -> Result:
    """Look at the folder of the locks, or connect to their service."""
    url = parse.urlsplit(CONF.coordination.backend_url)
    remedy = _('correct backend_url in [coordination], or make it work')
    if url.scheme == 'file':
        return _check_folder(host, url.path, remedy)
    where = '%s at %s' % (url.scheme, url.netloc.rpartition('@')[2])
    failures = []
    for server in url.netloc.rpartition('@')[2].split(','):
        each = parse.urlsplit('//' + server)
        port = each.port or PORTS.get(url.scheme.partition('+')[0])
        if port is None:
            return result.unknown(
                NAME, _('the port of %s is not known') % where,
                _('name it in backend_url'))
        try:
            if url.scheme == 'etcd3+http':
                # A server that hangs still accepts connections.
                host.get('http://%s:%d/version' % (each.hostname, port))
            else:
                host.connect(each.hostname or '', port)
        except OSError as error:
            failures.append(str(error))
        else:
            return result.ok(NAME, where)
    return result.failed(NAME, _('%(where)s does not answer: %(error)s') % {
        'where': where, 'error': ', '.join(failures)}, remedy)


def _check_folder(host: Host, path: str, remedy: str) -> Result:
    """Check a folder, which tooz creates if it does not exist."""
    present = path
    while not host.exists(present):
        present = os.path.dirname(present)
    folder = host.path(present)
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return result.failed(
            NAME, _('this user cannot write in %s') % present, remedy)
    return result.ok(NAME, _('files in %s') % path)
