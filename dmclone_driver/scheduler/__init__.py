# SPDX-License-Identifier: Apache-2.0
"""Placing instances by their volumes, in the process of Nova's scheduler."""
