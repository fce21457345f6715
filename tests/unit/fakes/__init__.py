# SPDX-License-Identifier: Apache-2.0
"""Simulated kernel, LVM, network and peers for unit tests."""
