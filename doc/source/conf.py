# SPDX-License-Identifier: Apache-2.0

extensions = [
    'openstackdocstheme',
    'oslo_config.sphinxext',
]

project = 'dmclone_driver'
copyright = 'dmclone_driver developers'
master_doc = 'index'
openstackdocs_auto_name = False
openstackdocs_auto_version = False
html_theme = 'openstackdocs'
pygments_style = 'native'
