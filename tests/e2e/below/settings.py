import os

from tests.e2e.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.e2e.below"]  # noqa: F405
MIDDLEWARE = ["tests.e2e.below.middleware.in_tokyo", *MIDDLEWARE]  # noqa: F405
TIME_ZONE = "America/New_York"
FORCE_SCRIPT_NAME = os.environ.get("BELOW_FORCED") or None
