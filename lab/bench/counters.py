# SPDX-License-Identifier: Apache-2.0
"""Counts of what has been done on nodes and in the database."""

#: Both count what a client asks, in MariaDB's user statistics: without the
#: control plane, other nodes and the laboratory, which ask all the time.
_COUNT = 'SET GLOBAL userstat = 1'
_OF_CLIENTS = ('SELECT client, select_commands + update_commands + '
               'other_commands FROM information_schema.client_statistics')


def read(lab, *nodes):
    """Return {what: its number since the start}.

    Statements of all, and those of the nodes since the first call.

    :param nodes: whose processes are counted together
    """
    lab.sql(_COUNT)
    addresses = {node.ip for node in nodes}
    (_name, statements), = lab.sql("SHOW GLOBAL STATUS LIKE 'Questions'")
    return {'statements': int(statements), 'statements of the nodes': sum(
        int(count) for client, count in lab.sql(_OF_CLIENTS)
        if client in addresses), 'processes and threads': sum(
        int(node.run("awk '/^processes/ { print $2 }' /proc/stat"))
        for node in nodes)}
