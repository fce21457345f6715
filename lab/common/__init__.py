# SPDX-License-Identifier: Apache-2.0
"""Shared by tests, the demo and benchmarks: users, volumes, guests."""
