"""Settings of the documentation site."""

project = "amplifier-slack"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "amplifier-slack"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
exclude_patterns = ["examples"]
# Headings have the anchors that they have on GitHub.
myst_heading_anchors = 4
# A block in an unknown language, such as `console`, is plain text.
suppress_warnings = ["misc.highlighting_failure"]
