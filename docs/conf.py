"""How the site is built: offline, with every reference checked and every outcome computed."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
# What cells run in: their models are small, and a second thread costs them more than it gives.
os.environ |= {"MATPLOTLIBRC": str(ROOT / "docs" / "matplotlibrc"), "OMP_NUM_THREADS": "1"}

project = "lai-core"
author = "The lai-core developers"
copyright = f"2026, {author}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "anchors",
    "computed",
    "ledger_data",
    "public_modules",
    "recorded",
    "shapes",
    "source_pages",
    "statements",
]
exclude_patterns = ["_ext", "_static", "recorded"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds a cell
nb_merge_streams = True
nb_render_markdown_format = "myst"  # tables and mathematics of what a cell displays

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_param = True
napoleon_use_rtype = False
napoleon_attr_annotations = False  # types are in the signature, as for functions
default_role = "code"
nitpick_ignore_regex = [("py:.*", r"(?!lai_).*")]  # other projects' names, and types in prose

copybutton_prompt_text = ">>> |\\.\\.\\. |\\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div.highlight:not(.cell_output *) pre"  # what is typed, not what is printed

html_theme = "furo"
html_title = "lai-core"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["open-pictures.js"]
html_search_scorer = str(ROOT / "docs" / "_static" / "search-scorer.js")  # read as it is, from anywhere
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f8b", "color-brand-content": "#1f5f8b"},
    "dark_css_variables": {"color-brand-primary": "#7fb8dd", "color-brand-content": "#7fb8dd"},
}

mathjax_path = "mathjax/tex-svg.js"
mathjax3_config = {
    "tex": {
        "macros": {
            "ip": [r"\langle #1, #2 \rangle", 2],
            "norm": [r"\lVert #1 \rVert", 1],
            "R": r"\mathbb{R}",
            "E": r"\operatorname{E}",
            "Var": r"\operatorname{Var}",
            "Cov": r"\operatorname{Cov}",
            "sd": r"\operatorname{sd}",
            "tr": r"\operatorname{tr}",
            "diag": r"\operatorname{diag}",
            "Ghost": r"\mathrm{Ghost}",
            "LAI": r"\mathrm{LAI}",
            "LLI": r"\mathrm{LLI}",
        }
    },
    "svg": {"fontCache": "local"},
}
