# SPDX-License-Identifier: Apache-2.0
"""Cinder volumes on the hypervisor that uses them, moved by dm-clone."""

#: The release that this code becomes; setup.cfg has the same.
__version__ = '0.1.0'
