# SPDX-License-Identifier: Apache-2.0
"""A real laboratory on one machine: nodes, services, ways to break them.

Each node is a User Mode Linux kernel with disks of its own, LVM, an iSCSI
target and initiator, and cinder-volume with the driver from this checkout.
The control plane (MariaDB, RabbitMQ, Keystone, Glance, Cinder's API and
scheduler) runs on the host. All of them meet in one network namespace.

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
    here.check()                    # did the laboratory itself fail?

DMCLONE_LAB_CACHE (/var/cache/dmclone-lab) holds what set-up made,
DMCLONE_LAB_STATE (/var/lib/dmclone-lab) the laboratory that is up. With a
DMCLONE_LAB_STATE and a DMCLONE_LAB_NAMESPACE of one's own, a second
laboratory fits beside the first.
"""
