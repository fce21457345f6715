# SPDX-License-Identifier: Apache-2.0
"""Where clones record what they have: one small interface, one file a kind."""
