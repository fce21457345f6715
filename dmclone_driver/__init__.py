# SPDX-License-Identifier: Apache-2.0
"""Cinder volumes on the hypervisor that uses them, moved by dm-clone."""
