"""Sphinx configuration of the site. The sources are written by turbo_site.staging."""

import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

project = "Turbo Lab"
author = "Turbo Lab contributors"
project_copyright = "Turbo Lab contributors, Apache-2.0"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]

extensions = ["myst_nb", "turbo_site.formulas", "turbo_site.search"]
language = "en"

# Notebooks are shown as committed. Without widgets nothing is loaded from elsewhere.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "svg"

html_theme = "pydata_sphinx_theme"
html_title = "Turbo Lab"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_favicon = str(HERE / "static" / "favicon.svg")
html_js_files = ["site.js"]
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {"index": [], "results": [], "claims": [], "zh": []}
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_theme_options = {
    "logo": {"text": "Turbo Lab"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_nav_level": 1,
    "show_toc_level": 1,
    "navigation_with_keys": False,
    "search_bar_text": "Search the course",
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version", "theme-version"],
    "primary_sidebar_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
