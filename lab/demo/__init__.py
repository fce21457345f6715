# SPDX-License-Identifier: Apache-2.0
"""A demonstration of a move, with explanations for newcomers."""
