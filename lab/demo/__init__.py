# SPDX-License-Identifier: Apache-2.0
"""The project's main job as a story that a newcomer can follow."""
