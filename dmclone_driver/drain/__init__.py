# SPDX-License-Identifier: Apache-2.0
"""Draining a node: all its volumes go to other nodes."""
