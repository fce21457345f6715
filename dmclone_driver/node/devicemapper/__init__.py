# SPDX-License-Identifier: Apache-2.0
"""Device-mapper tables and status as values, and calls of dmsetup."""
