# SPDX-License-Identifier: Apache-2.0
"""A laboratory on one machine: nodes, services, and injected faults.

Each node is a User Mode Linux kernel with disks of its own, LVM, an iSCSI
target and initiator, and cinder-volume with the driver from this checkout.
The control plane (MariaDB, RabbitMQ, Keystone, Glance, Cinder's API and
scheduler) runs on the host. All of them share one network namespace.

From the command line: `tools/lab --help`. From a test::

    from lab import lab
    from lab import wait

    here = lab.Lab.load()           # the laboratory that is up
    node = here.node('node1')
    node.run('lvs')                 # over ssh, as root
    node.cut_power()
    node.start()
    node.wait_ready()
    node.configure({'dmclone': {'volume_clear': 'none'}})
    node.restart('cinder-volume')
    here.enter()                    # this thread, into the namespace
    cloud = here.cloud('demo')      # openstacksdk
    here.check()                    # raise if the laboratory itself failed

DMCLONE_LAB_CACHE (/var/cache/dmclone-lab) holds the results of set-up,
DMCLONE_LAB_STATE (/var/lib/dmclone-lab) the laboratory that is up. With
another DMCLONE_LAB_STATE and another DMCLONE_LAB_NAMESPACE, a second
laboratory can run at the same time.
"""
