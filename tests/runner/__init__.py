# SPDX-License-Identifier: Apache-2.0
"""tools/test: run sets of tests, and count their results.

Needs only the system's Python, and installs everything else.
"""
