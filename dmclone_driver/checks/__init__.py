# SPDX-License-Identifier: Apache-2.0
"""Checks of a node and its configuration, at a start and for operators."""
