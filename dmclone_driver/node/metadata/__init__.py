# SPDX-License-Identifier: Apache-2.0
"""Stores for clones' metadata: one interface, one file per kind of store."""
