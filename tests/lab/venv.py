# SPDX-License-Identifier: Apache-2.0
"""The virtual environment that holds OpenStack, for host and nodes alike."""


def ensure():
    """Build it unless it is there."""
