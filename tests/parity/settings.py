"""Settings of the example project, and beside its apps one whose admins decide by user, by row and by hook."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS as EXAMPLE_APPS

INSTALLED_APPS = [*EXAMPLE_APPS, "tests.parity.depot"]
