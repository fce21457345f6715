# SPDX-License-Identifier: Apache-2.0
"""The pages about deployment tools, compared with the tools' sources."""
