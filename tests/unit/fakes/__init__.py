# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what a unit test cannot have: kernel, LVM, network, peers."""
