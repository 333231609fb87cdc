"""How Sphinx makes the documentation site: `make docs`."""

import sys
import tomllib
from pathlib import Path
from typing import Any

import django
from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from docs.llms import write_pages  # noqa: E402

# The reference is read from docstrings, and the modules that hold them need loaded apps.
settings.configure(
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "channels",
        "oauth2_provider",
        "rest_framework",
        "mcp_django",
    ],
    USE_TZ=True,
)
django.setup()

project = "django-mcp-orm"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["images", "pictures"]

# What is copied of a console are its commands, without the prompt.
copybutton_prompt_text = "$ "

# The pages are read on GitHub too: anchors are made as there, and directives stand between colons.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
# `request` and the like say nothing that the names do not say.
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

html_theme = "furo"
html_title = "django-mcp-orm"
html_copy_source = False
html_show_sphinx = False


def leave_out_of_search(app: Any, doctree: Any) -> None:
    """Keep the records of decisions out of what users find: they are about the code, not about its use."""
    name = app.env.docname
    if name.startswith("decisions/"):
        app.env.metadata[name]["nosearch"] = True


def setup(app: Any) -> None:
    app.connect("doctree-read", leave_out_of_search)
    app.connect("build-finished", write_pages)
