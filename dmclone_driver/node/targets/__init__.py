# SPDX-License-Identifier: Apache-2.0
"""Cinder's iSCSI targets, narrowed to what a move's source needs."""
