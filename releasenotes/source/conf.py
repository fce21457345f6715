# SPDX-License-Identifier: Apache-2.0

extensions = [
    'openstackdocstheme',
    'reno.sphinxext',
]

project = 'dmclone_driver release notes'
copyright = 'dmclone_driver developers'
master_doc = 'index'
release = ''
version = ''
openstackdocs_auto_name = False
openstackdocs_auto_version = False
html_theme = 'openstackdocs'
pygments_style = 'native'
