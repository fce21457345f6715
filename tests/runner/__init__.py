# SPDX-License-Identifier: Apache-2.0
"""tools/test: runs sets of tests, and counts.

Starts with nothing but the system's own Python, and installs the rest.
"""
