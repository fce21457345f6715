# SPDX-License-Identifier: Apache-2.0
"""tools/tempest: Tempest's tests of volumes, run against the laboratory.

The same tests with the same settings, with this driver and with Cinder's LVM
driver. What passes there has to pass here, except for the tests in
differences.txt.
"""
