# SPDX-License-Identifier: Apache-2.0
"""Counts of what has been done on nodes and in the database."""


def read(lab, *nodes):
    """Return {what: its number since the start}.

    :param nodes: whose processes are counted together
    """
    (_name, statements), = lab.sql("SHOW GLOBAL STATUS LIKE 'Questions'")
    return {'statements': int(statements), 'processes and threads': sum(
        int(node.run("awk '/^processes/ { print $2 }' /proc/stat"))
        for node in nodes)}
