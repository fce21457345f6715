# SPDX-License-Identifier: Apache-2.0
"""Moves of volumes between nodes: both sides, and what keeps them going."""
