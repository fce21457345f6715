# SPDX-License-Identifier: Apache-2.0
"""One node: its kernel, LVM and iSCSI, without moves and the database."""
