# SPDX-License-Identifier: Apache-2.0
"""Translation of what users and operators read."""

import oslo_i18n

_translators = oslo_i18n.TranslatorFactory(domain='dmclone_driver')

_ = _translators.primary
