# SPDX-License-Identifier: Apache-2.0
"""Cinder's iSCSI target drivers, restricted to the needs of a source."""
