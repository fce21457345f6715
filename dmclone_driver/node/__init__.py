# SPDX-License-Identifier: Apache-2.0
"""One machine: its kernel, LVM and iSCSI. Knows no move and no database."""
