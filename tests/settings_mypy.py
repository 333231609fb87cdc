"""The models of all the projects in this repository together, for mypy's Django plugin and nothing else."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.project.apps.BenchConfig", "mcp_django.tryout", "tests.testapp"]
