"""The example project with another look of its admin, that of the package which `E2E_THEME` names."""

import os

from tests.e2e.settings import *  # noqa: F403

THEME = os.environ["E2E_THEME"]
INSTALLED_APPS = [THEME, *INSTALLED_APPS]  # noqa: F405
ROOT_URLCONF = "tests.e2e.urls_themes"
# The footer of the example project is made for Django's own admin.
TEMPLATES = [{**TEMPLATES[0], "DIRS": []}]  # noqa: F405
