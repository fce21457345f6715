# SPDX-License-Identifier: Apache-2.0
"""The endpoint from which Prometheus reads the metrics of this service."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cinder.volume import configuration as cinder_configuration
from oslo_log import log as logging
import prometheus_client

from dmclone_driver.move import counts

if TYPE_CHECKING:
    from dmclone_driver.move.metrics import Collector

LOG = logging.getLogger(__name__)

# Seconds until an address is tried again that was not there, or in use.
RETRY = 60


def start(configuration: cinder_configuration.Configuration,
          collector: Collector) -> None:
    """Serve the metrics in threads of their own, if that is configured.

    With eventlet these are green threads. They only wait for the network, and
    for the report that the collector limits.
    """
    if not configuration.dmclone_metrics_port:
        return
    counts.REGISTRY.register(collector)
    threading.Thread(
        target=_serve, daemon=True, name='dmclone-metrics',
        args=(configuration.dmclone_metrics_address,
              configuration.dmclone_metrics_port)).start()


def _serve(address: str, port: int) -> None:
    """Open the port; a failure is no reason to stop the backend."""
    while True:
        try:
            prometheus_client.start_http_server(port, addr=address,
                                                registry=counts.REGISTRY)
        except OSError as error:
            LOG.error('Metrics cannot be served at %(address)s, port '
                      '%(port)d: %(error)s. That is tried again. Check '
                      'dmclone_metrics_address and dmclone_metrics_port.',
                      {'address': address, 'port': port, 'error': error})
            time.sleep(RETRY)
        else:
            LOG.info('Metrics are served at %(address)s, port %(port)d.',
                     {'address': address, 'port': port})
            return
