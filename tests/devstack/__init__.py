# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin, run by DevStack's phases on a simulated machine."""
