# SPDX-License-Identifier: Apache-2.0
"""Cinder's iSCSI targets, narrowed to what a transfer's source needs."""
