# SPDX-License-Identifier: Apache-2.0

from pbr import version as pbr_version

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
]

project = 'dmclone_driver'
copyright = 'dmclone_driver developers'
master_doc = 'index'
# Of the installed package. The version that the theme takes by default ignores
# setup.cfg.
_package = pbr_version.VersionInfo('dmclone_driver')
release = _package.release_string()
version = _package.version_string()
openstackdocs_auto_name = False
openstackdocs_auto_version = False
html_theme = 'openstackdocs'
pygments_style = 'native'
