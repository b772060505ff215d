"""The documentation site: `make docs` writes it to build/docs."""

from __future__ import annotations

from lqf import __version__

project, author, copyright = "lqf", "The lqf developers", "The lqf developers, Apache-2.0"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["build"]
html_theme, html_title = "furo", f"lqf {release}"
html_copy_source = False
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
napoleon_use_ivar = True
default_role = "code"
