# SPDX-License-Identifier: Apache-2.0
"""A real laboratory on one machine: nodes, services, ways to break them."""
