# SPDX-License-Identifier: Apache-2.0

from pbr import version as pbr_version

extensions = [
    'oslo_config.sphinxext',
]

project = 'dmclone_driver'
copyright = 'dmclone_driver developers. Licence: Apache-2.0'
master_doc = 'index'
# Of the installed package, as pip shows it.
_package = pbr_version.VersionInfo('dmclone_driver')
release = _package.release_string()
version = _package.version_string()
html_theme = 'furo'
html_title = 'dmclone_driver %s' % version
html_copy_source = False
html_static_path = ['_static']
html_css_files = ['tables.css']
# Diagrams and commands are not Python: a block is in the language that it
# declares, or in none.
highlight_language = 'none'
# Quotes only: the two dashes of an option are no dash.
smartquotes_action = 'q'
