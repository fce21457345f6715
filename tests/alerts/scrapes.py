# SPDX-License-Identifier: Apache-2.0
"""Scrapes of the nodes' endpoints, as by Prometheus, and what they fire."""

import http.client
import time
import urllib.request

from prometheus_client import parser

from tests.alerts import promql
from tests.alerts import rules

#: Seconds until Prometheus gives a scrape up (its default scrape_timeout).
TIMEOUT = 10
#: Seconds that are longer than all ranges in the rules.
LONGEST = 2000


def read(url):
    """Read the metrics at an address.

    :returns: {(name, ((label, value), ...)): value}, None without an answer
    """
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples}


class Scrapes:
    """What a Prometheus has scraped from the nodes."""

    def __init__(self, addresses, port):
        """Begin without a scrape.

        :param addresses: {name of a node: its address}
        """
        self._urls = {name: 'http://%s:%d/metrics' % (address, port)
                      for name, address in addresses.items()}
        self._rules = rules.rules()
        self._history = promql.History()
        self._skipped = 0

    def answering(self):
        """Return the names of the nodes that offer metrics."""
        return {name for name, url in self._urls.items()
                if read(url) is not None}

    def look(self):
        """Scrape all nodes; return the alerts as {(alert, node)}.

        ``for`` in a rule, which only delays an alert, is left out.
        """
        self._scrape()
        return {(name, dict(labels)['instance'])
                for name, rule in self._rules.items()
                for labels in self._history.evaluate(rule['expr'])}

    def look_later(self, pause):
        """Return what would still fire when all ranges have passed.

        What is counted has to stay as it is during a real pause.

        :param pause: seconds between the last two scrapes
        """
        self._skipped += LONGEST
        self._scrape()
        time.sleep(pause)
        return self.look()

    def _scrape(self):
        samples = {}
        for name, url in self._urls.items():
            target = (('instance', name), ('job', 'dmclone'))
            found = read(url)
            samples['up', target] = int(found is not None)
            for (metric, labels), value in (found or {}).items():
                samples[metric, tuple(sorted(labels + target))] = value
        self._history.add(time.monotonic() + self._skipped, samples)
