"""System checks: what is wrong with a declaration or a setting is said at start, not when a client calls.

Ids: ``E0xx``/``W0xx`` for exposures, tools and mounts; those of ``oauth/checks.py`` are ``E1xx``/``W1xx``.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from rest_framework.authentication import SessionAuthentication

from .conf import DEFAULTS, settings
from .exposures import ModelExposure
from .oauth.checks import CHECKS as OAUTH_CHECKS
from .sites import MCPSite, mounted_endpoints, mounted_prefixes, site
from .visibility import is_sensitive

__all__ = ["CHECKS"]

# Clients refuse or hide what is beyond these (VS Code 128, Cursor 40).
MANY_TOOLS: Final = 40
TOO_MANY_TOOLS: Final = 120


def all_sites() -> list[MCPSite]:
    """Return the default site and every site that the URLconf mounts."""
    try:
        mounted = list(mounted_endpoints().values())
    except ImproperlyConfigured:
        # There is no URLconf, or it is broken: Django's own checks say so.
        mounted = []
    return list(dict.fromkeys([site, *mounted]))


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check the names and the values of ``MCP_DJANGO``."""
    found: list[CheckMessage] = [
        Error(
            f"MCP_DJANGO has no setting {name!r}.",
            hint=f"The settings are {', '.join(sorted(DEFAULTS))}.",
            id="mcp_django.E001",
        )
        for name in getattr(django_settings, "MCP_DJANGO", {})
        if name not in DEFAULTS
    ]
    if not settings.AUTHENTICATION_CLASSES and not django_settings.DEBUG:
        found.append(
            Warning(
                "The MCP endpoint is open to anyone: AUTHENTICATION_CLASSES is empty.",
                hint="Leave the setting out, and clients sign in with OAuth.",
                id="mcp_django.W002",
            )
        )
    if any(issubclass(item, SessionAuthentication) for item in settings.AUTHENTICATION_CLASSES):
        found.append(
            Error(
                "SessionAuthentication cannot sign in an MCP client: a cookie alone is never authority there.",
                hint="Name a class that reads the Authorization header.",
                id="mcp_django.E003",
            )
        )
    return found


def check_mounts(**kwargs: Any) -> list[CheckMessage]:
    """Check where the endpoints are mounted."""
    return [
        Warning(
            f"An MCP endpoint is mounted below {prefix!r}: clients that leave out the slash do not find it.",
            hint='Write path("mcp", site.urls), without a trailing slash; it answers both.',
            id="mcp_django.W004",
        )
        for prefix in mounted_prefixes()
        if prefix != "/" and prefix.endswith("/")
    ]


def check_tools(**kwargs: Any) -> list[CheckMessage]:
    """Check that names are unique and that no client is given more tools than it takes."""
    found: list[CheckMessage] = []
    for checked in all_sites():
        names = Counter(checked.all_tool_names())
        found += [
            Error(
                f"{count} tools of the site {checked.name!r} are named {name!r}.",
                hint="Rename an action or give a function tool another name.",
                id="mcp_django.E005",
            )
            for name, count in names.items()
            if count > 1
        ]
        own = len(checked.function_tools())
        if own > TOO_MANY_TOOLS:
            found.append(Error(f"The site {checked.name!r} has {own} function tools.", id="mcp_django.E006"))
        elif own > MANY_TOOLS:
            found.append(Warning(f"The site {checked.name!r} has {own} function tools.", id="mcp_django.W006"))
    return found


def check_exposures(**kwargs: Any) -> list[CheckMessage]:
    """Check every exposure of every site."""
    return [
        message
        for checked in all_sites()
        for exposure in checked.exposures.values()
        for message in _check_exposure(exposure)
    ]


def _check_exposure(exposure: ModelExposure) -> Iterator[CheckMessage]:
    where = type(exposure)
    for option in ("fields", "exclude", "readonly_fields", "list_display"):
        for name in _names(exposure, option):
            if not _exists(exposure, name):
                yield Error(
                    f"{where.__name__}.{option} refers to {name!r}, which {exposure.label} does not have.",
                    obj=where,
                    id="mcp_django.E010",
                )
    if not hasattr(exposure, "model_admin") and exposure.fields is None:
        yield Warning(
            f"{where.__name__} declares no fields: {exposure.label} shows its primary key alone.",
            hint='List the fields, or write fields = "__all__".',
            obj=where,
            id="mcp_django.W011",
        )
    if exposure.fields == "__all__":
        yield Warning(
            f'{where.__name__}.fields is "__all__": a field added to {exposure.label} later is shown at once.',
            hint="List the fields.",
            obj=where,
            id="mcp_django.W012",
        )
    for name in _names(exposure, "fields"):
        if is_sensitive(name):
            yield Warning(
                f"{where.__name__}.fields shows {name!r}, which looks like a secret, to every caller who may view "
                f"{exposure.label}.",
                obj=where,
                id="mcp_django.W013",
            )
    for name in exposure.actions:
        if not hasattr(getattr(exposure, name, None), "mcp_action"):
            yield Error(
                f"{where.__name__}.actions refers to {name!r}, which is not a method marked with @mcp.action.",
                obj=where,
                id="mcp_django.E014",
            )


def _names(exposure: ModelExposure, option: str) -> list[str]:
    value = getattr(exposure, option) or ()
    return [] if isinstance(value, str) else list(value)


def _exists(exposure: ModelExposure, name: str) -> bool:
    try:
        exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return hasattr(exposure.model, name) or exposure.get_computed(name) is not None
    return True


CHECKS: Final = (check_settings, check_mounts, check_tools, check_exposures, *OAUTH_CHECKS)
