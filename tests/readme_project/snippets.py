"""Run within the README's project: each snippet of the documentation that declares something is declared and checked.

Reads `{"declarations": [...], "settings": [...], "calls": [...]}` from standard input, each a list of places and what
stands there, and prints what is wrong, one line each.
"""

import copy
import json
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.checks import ERROR, run_checks
from django.test.utils import override_settings, setup_test_environment
from shop.models import Customer, Order

import mcp_django
from mcp_django import decorators
from mcp_django.checks import approvals
from mcp_django.checks import declarations as checks
from mcp_django.sites import MCPSite
from mcp_django.testing import MCPClient

setup_test_environment()


def declare(where: str, source: str) -> list[str]:
    """Run a snippet against a site of its own and return what the system checks say of it."""
    fresh = MCPSite("mcp_django", admin_site=admin.site)
    namespace: dict[str, Any] = {"__name__": "snippet"}
    with mock.patch.object(decorators, "default_site", fresh), mock.patch.object(mcp_django, "site", fresh):
        exec(compile(source, where, "exec"), namespace)
    sites = [fresh, *(value for value in namespace.values() if isinstance(value, MCPSite))]
    declared = sum(len(site._registry) + len(site.function_tools()) + len(site.prompts) for site in sites)
    wrong = [] if declared or any(site.resources for site in sites) else ["declares nothing"]
    with (
        mock.patch.object(checks, "all_sites", return_value=sites),
        mock.patch.object(approvals, "all_sites", return_value=sites),
    ):
        found = [*checks.check_exposures(), *checks.check_tools(), *approvals.check_approvals()]
    wrong += [str(message) for message in found if message.level >= ERROR]
    return [f"{where}: {problem}" for problem in wrong]


def configure(where: str, source: str) -> list[str]:
    """Run settings after the project's own and return what the system checks say of them."""
    namespace = {name: copy.deepcopy(getattr(settings, name)) for name in dir(settings) if name.isupper()}
    before = copy.deepcopy(namespace)
    # As the project has it: that of the tests is in there too.
    namespace["ALLOWED_HOSTS"] = [host for host in settings.ALLOWED_HOSTS if host != "testserver"]
    exec(compile(source, where, "exec"), namespace)
    # A connection cannot be made anew here.
    names = [name for name in before if namespace[name] != before[name] and name != "DATABASES"]
    with override_settings(**{name: namespace[name] for name in names}):
        found = run_checks()
    return [f"{where}: {message}" for message in found if str(message.id).startswith("mcp_django")]


def call(where: str, params: dict[str, Any]) -> list[str]:
    """Make the call and return why it failed."""
    client = MCPClient(get_user_model().objects.get(username="ada"))
    memory = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
    with override_settings(STORAGES={**settings.STORAGES, "mcp_exports": memory}):
        result = client.call(params["name"], **params["arguments"])
    rows = (result.structured or {}).get("rows")
    return [] if rows and not result.is_error else [f"{where}: {result.text}"]


def problems(given: dict[str, list[tuple[str, Any]]]) -> Iterator[str]:
    Order.objects.create(number="A-1", customer=Customer.objects.create(name="Grace"), total=10)
    for kind, check in (("settings", configure), ("declarations", declare), ("calls", call)):
        for where, what in given[kind]:
            yield from check(where, what)


print(*problems(json.load(sys.stdin)), sep="\n")
