# SPDX-License-Identifier: Apache-2.0

extensions = [
    'reno.sphinxext',
]

project = 'dmclone_driver release notes'
copyright = 'dmclone_driver developers. Licence: Apache-2.0'
master_doc = 'index'
release = ''
version = ''
html_theme = 'furo'
html_title = project
html_copy_source = False
highlight_language = 'none'
