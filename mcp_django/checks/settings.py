"""System checks of settings: MCP_DJANGO, hosts, origins, middleware, mounts, channel layer, databases."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final

import django
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.admin import sites as admin_sites
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands
from django.db import connections
from django.http import HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string
from rest_framework.authentication import SessionAuthentication

from ..conf import UNKNOWN_KEY, faults, settings
from ..conf.defaults import DEFAULTS
from ..conf.tested_versions import TESTED_DJANGO, is_newer_than_tested
from ..context.call_middleware import CallMiddleware
from ..context.person_consent import may_need_person
from ..emulation.admin_exposure import AdminExposure
from ..routing import ENDPOINTS, known_urlconfs
from ..runtime.middleware_source import missing_attributes, reads, traits_of_name
from .approvals import CHECKS as APPROVAL_CHECKS
from .check_rules import Check, Rule, broken, check, problem
from .declarations import CHECKS as DECLARATION_CHECKS
from .declarations import DEPLOYMENT_CHECKS as DECLARATION_DEPLOYMENT_CHECKS
from .declarations import FIRST_CHECKS, after_declarations, all_sites, check_ttl, mounted
from .oauth import CHECKS as OAUTH_CHECKS
from .oauth import DEPLOYMENT_CHECKS as OAUTH_DEPLOYMENT_CHECKS
from .oauth import is_open_http
from .storages import CHECKS as STORAGE_CHECKS
from .storages import DEPLOYMENT_CHECKS as STORAGE_DEPLOYMENT_CHECKS
from .tasks import CHECKS as TASK_CHECKS
from .viewsets import DEPLOYMENT_CHECKS as VIEWSET_DEPLOYMENT_CHECKS

# Keys of TELEMETRY that need an extra: the package that it installs, and the name of the extra.
EXTRAS: Final = {"opentelemetry": ("opentelemetry", "telemetry"), "prometheus": ("prometheus_client", "prometheus")}
# Apps whose `runserver` serves WSGI.
WSGI_SERVERS: Final = ("django.core", "django.contrib.staticfiles")
# Methods by which packages for tenants choose the schema of a connection.
SCHEMA_METHODS: Final = ("set_schema", "set_tenant")
# What a page needs that knows its signed-in user.
PEOPLE_MIDDLEWARE: Final = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
)
# Modes of SQLite transactions that take the lock for writing at their beginning.
WAITING_MODES: Final = ("IMMEDIATE", "EXCLUSIVE")


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    for fault in faults():
        code = "E001" if fault.cause == UNKNOWN_KEY else "E008"
        messages.append(problem(code, fault.what, fault.remedy))
    if messages:
        return messages
    times = settings.CACHE_TTL_MS if isinstance(settings.CACHE_TTL_MS, Mapping) else {"all": settings.CACHE_TTL_MS}
    for name, ttl in times.items():
        messages += check_ttl(f"CACHE_TTL_MS of {name}", ttl)
    return messages


CHECKS: list[Check] = [check_settings]
# Checks of `check --deploy`.
DEPLOYMENT_CHECKS: list[Check] = []


@check(CHECKS)
def check_authentication() -> Iterator[CheckMessage]:
    try:
        classes = settings.AUTHENTICATION_CLASSES
    except ImproperlyConfigured as error:
        yield problem("E008", str(error), f"The default is {DEFAULTS['AUTHENTICATION_CLASSES']}.")
        return
    except RuntimeError:  # it needs the toolkit, which is not installed
        return
    if not classes and not django_settings.DEBUG:
        text = "The MCP endpoint is open to anyone: AUTHENTICATION_CLASSES is empty."
        yield problem("W002", text, "Leave the setting out, and clients sign in with OAuth.")
    if any(issubclass(item, SessionAuthentication) for item in classes):
        text = "SessionAuthentication cannot sign in an MCP client: the endpoint ignores cookies."
        yield problem("E003", text, "Name a class that reads the Authorization header.")


def _is_url(value: Any, *more: str) -> bool:
    return isinstance(value, str) and value.startswith(("https://", "http://", *more))


def _is_below_base(path: Any) -> bool:
    return isinstance(path, str) and path.startswith("/") and not path.startswith("//") and bool(settings.BASE_URL)


def _names_no_layer() -> bool:
    is_named = "EVENTS" in getattr(django_settings, "MCP_DJANGO", {})
    return is_named and settings.EVENTS is not False and settings.EVENTS not in _channel_layers()


def _channel_layers() -> Mapping[str, Any]:
    layers: Mapping[str, Any] = getattr(django_settings, "CHANNEL_LAYERS", {})
    return layers


RULES: Final = (
    Rule(
        "E065",
        lambda: (
            not (
                settings.SERVER["icon"] is None
                or _is_url(settings.SERVER["icon"], "data:image/")
                or _is_below_base(settings.SERVER["icon"])
            )
        ),
        "SERVER['icon'] is {SERVER[icon]!r}, which is not a URL.",
        'Write a URL such as "https://shop.example/icon.png", or a path below BASE_URL such as "/static/icon.png".',
    ),
    Rule(
        "E066",
        # The maximum in registries and server cards.
        lambda: len(str(settings.SERVER["description"] or "")) > 100,
        "SERVER['description'] is longer than 100 characters.",
        "Registries accept no more. Put what models should know in INSTRUCTIONS.",
    ),
    Rule(
        "E067",
        lambda: settings.SERVER["website"] is not None and not _is_url(settings.SERVER["website"]),
        "SERVER['website'] is {SERVER[website]!r}, which is not a URL.",
        'Write a full URL, such as "https://shop.example/mcp-help".',
    ),
    Rule(
        "E015",
        _names_no_layer,
        "EVENTS is {EVENTS!r}, which CHANNEL_LAYERS does not have.",
        "Name one of its keys, or leave the setting out.",
    ),
    Rule(
        "I034",
        lambda: sys.argv[1:2] == ["runserver"] and get_commands().get("runserver") in WSGI_SERVERS and mounted(),
        "This runserver is WSGI: clients can sign in and call tools, but there are no streams (progress, questions to "
        "the user, changes).",
        'Put "daphne" first in INSTALLED_APPS and set ASGI_APPLICATION, or run uvicorn on your asgi.py.',
    ),
)
DEPLOYMENT_RULES: Final = (
    Rule(
        "W150",
        lambda: "*" in django_settings.ALLOWED_HOSTS,
        "ALLOWED_HOSTS is '*': a page on any host name that leads to this server can call the endpoint.",
        "Name the hosts of the site.",
    ),
    Rule(
        "W151",
        lambda: settings.RATES["calls"] is None,
        "RATES['calls'] is None: one user can make as many calls as the server can answer.",
        "The default is {DEFAULTS[RATES][calls]!r}.",
    ),
    Rule(
        "W160",
        lambda: settings.STATEMENT_TIMEOUT is None,
        "STATEMENT_TIMEOUT is None: one query can keep the database busy for as long as it takes.",
        "The default is {DEFAULTS[STATEMENT_TIMEOUT]!r} seconds.",
    ),
)


@check(CHECKS)
def check_django() -> Iterator[CheckMessage]:
    if settings.COMPILED_QUERIES and is_newer_than_tested():
        newest = ".".join(map(str, TESTED_DJANGO[-1]))
        yield problem(
            "I071",
            f"Django {django.get_version()} is newer than {newest}, the newest release that this version was tested "
            "with: queries are not compiled once, so that calls take longer.",
            "Look for a newer version of django-mcp-orm, or set COMPILED_QUERIES to False if this is meant.",
        )


@check(CHECKS)
def check_values() -> Iterator[CheckMessage]:
    yield from broken(RULES)


@check(DEPLOYMENT_CHECKS)
def check_door() -> Iterator[CheckMessage]:
    yield from broken(DEPLOYMENT_RULES)
    for origin in settings.ALLOWED_ORIGINS:
        if is_open_http(origin):
            text = f"ALLOWED_ORIGINS has {origin!r}: anyone on the network path can inject a script into its pages."
            yield problem("W161", text, "Serve that site over TLS, and write its origin with https.")


@check(CHECKS)
def check_extras() -> Iterator[CheckMessage]:
    for name, (package, extra) in EXTRAS.items():
        if settings.TELEMETRY[name] and find_spec(package) is None:
            text = f"TELEMETRY[{name!r}] is on, but {package} is not installed."
            yield problem("E068", text, f'pip install "django-mcp-orm[{extra}]"')


@check(DEPLOYMENT_CHECKS)
def check_news() -> Iterator[CheckMessage]:
    backend = str(_channel_layers().get(settings.EVENTS, {}).get("BACKEND", ""))
    if settings.EVENTS and (not backend or backend.endswith(".InMemoryChannelLayer")):
        text = "Subscribers learn only of changes made in their own worker: there is no channel layer between workers."
        yield problem("W016", text, "Set CHANNEL_LAYERS to channels_redis, or EVENTS to False.")


@check(CHECKS)
def check_mounts() -> Iterator[CheckMessage]:
    for prefix in ENDPOINTS.prefixes():
        if prefix != "/" and prefix.endswith("/"):
            text = f"An MCP endpoint is mounted below {prefix!r}: clients that leave out the slash do not find it."
            yield problem("W004", text, 'Write path("mcp", site.urls), without a trailing slash; it answers both.')


@check(CHECKS)
def check_shadows() -> Iterator[CheckMessage]:
    for urlconf, path, pattern in ENDPOINTS.shadowed():
        yield problem(
            "E009",
            f"The endpoint at {path!r} is never reached: {pattern!r}, which comes before it in {urlconf}, answers.",
            f'Move path("{path.strip("/")}", ...) up in its urlpatterns.',
        )


@check(CHECKS)
def check_urlconfs() -> Iterator[CheckMessage]:
    if not mounted():
        yield problem(
            "I045",
            f"{' and '.join(map(str, known_urlconfs()))} mounts no MCP endpoint.",
            'Add path("mcp", mcp_django.site.urls). If middleware chooses another URLconf for some requests, such as '
            "by their host, and that one mounts it, name it in URLCONFS.",
        )


@check(CHECKS)
def check_users() -> Iterator[CheckMessage]:
    try:
        user = get_user_model()
    except ImproperlyConfigured:  # Django's own checks report it
        return
    if not (hasattr(user, "has_perm") and hasattr(user, "has_perms")):
        text = f"{user._meta.label} has no has_perm(): tools cannot check permissions, and every call fails."
        yield problem("E035", text, "Derive it from PermissionsMixin too.", user)


@check(CHECKS)
def check_admin_sites() -> Iterator[CheckMessage]:
    if not settings.AUTO_REGISTER:
        return
    sites = all_sites()
    exposed = {model for checked in sites for model in checked.exposures}
    for admin_site in admin_sites.all_sites:
        models = {model for model, its in admin_site._registry.items() if sites[0].is_candidate(model, its)}
        if models and not models & exposed and _is_mounted(admin_site):
            yield problem(
                "W046",
                f"The admin site {admin_site.name!r} has models, but no endpoint exposes any of them.",
                "Mount an MCPSite with this admin_site, or make it the default one (AdminConfig.default_site).",
                type(admin_site),
            )
        else:
            yield from _check_second_classes(admin_site)


def _check_second_classes(admin_site: Any) -> Iterator[CheckMessage]:
    """Check the models that an admin site shows by classes of its own, while all endpoints follow another one."""
    followed = mounted()
    # Pages are found by the name of their site.
    names = {checked.admin_site.name for checked in followed if checked.admin_site is not None}
    if not names or admin_site.name in names or not _is_mounted(admin_site):
        return
    others: dict[str, str] = {}
    exposures = [exposure for checked in followed for exposure in checked.exposures.values()]
    used = {(exposure.model, type(exposure.model_admin)) for exposure in exposures}
    for exposure in exposures:
        here = admin_site._registry.get(exposure.model)
        if isinstance(exposure, AdminExposure) and here is not None and (exposure.model, type(here)) not in used:
            others[exposure.label] = exposure.admin_site_name
    if others:
        label, instead = next(iter(others.items()))
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        yield problem(
            "I165",
            f"The admin site {admin_site.name!r} has classes of its own for {label}{more}, but clients of all people "
            f"get those of {instead!r}.",
            "Mount an MCPSite with this admin_site at a URL for its people.",
            type(admin_site),
        )


def _is_mounted(admin_site: Any) -> bool:
    try:
        reverse(f"{admin_site.name}:index")
    except (NoReverseMatch, ImproperlyConfigured):
        return False
    return True


@check(CHECKS)
def check_tenants() -> Iterator[CheckMessage]:
    chosen = [alias for alias in connections if any(hasattr(connections[alias], name) for name in SCHEMA_METHODS)]
    for checked in mounted() if chosen else ():
        if not checked.needs_middleware:
            yield problem(
                "W047",
                f"Middleware chooses the tenant's schema of the database {chosen[0]!r}, but calls of the site "
                f"{checked.name!r} do not pass through it: they cannot find their tables.",
                'Use MCPSite(..., needs_middleware=True), or set mcp_django.site.needs_middleware = True in "mcp.py".',
            )


@check(CHECKS)
def check_writers() -> Iterator[CheckMessage]:
    files: list[Any] = [file for file in connections.all() if file.vendor == "sqlite"] if mounted() else []
    for file in files:
        mode = str(file.settings_dict["OPTIONS"].get("transaction_mode")).upper()
        if not file.is_in_memory_db() and mode not in WAITING_MODES:
            yield problem(
                "W070",
                f"A transaction of the SQLite database {file.alias!r} fails with 'database is locked' if it reads "
                "first and somebody else writes in between; calls and the log of calls write too.",
                f'DATABASES["{file.alias}"].setdefault("OPTIONS", {{}})["transaction_mode"] = "IMMEDIATE" makes it '
                "wait.",
            )


@check(CHECKS)
def check_persons() -> Iterator[CheckMessage]:
    """Find out whether a page for people works, where people confirm calls."""
    if not (mounted() and any(map(_asks_persons, mounted()))):
        return
    missing = [name for name in PEOPLE_MIDDLEWARE if not _has_middleware(name)]
    if missing or not apps.is_installed("django.contrib.sessions"):
        yield problem(
            "E072",
            "CONFIRM, or an option confirm, has people confirm calls on a page, but nobody can sign in to it: "
            f"{', '.join(missing) or 'django.contrib.sessions'} is missing.",
            "Install django.contrib.sessions, and set SessionMiddleware and AuthenticationMiddleware.",
        )


def _asks_persons(checked: Any) -> bool:
    """Return whether a site has calls that only a person can confirm."""
    declared = [exposure.confirm for exposure in checked.exposures.values()]
    declared += [getattr(tool, "confirmed_by", None) for tool in checked.function_tools()]
    return any(map(may_need_person, [None, *declared]))


def _has_middleware(base: str) -> bool:
    for name in django_settings.MIDDLEWARE:
        with suppress(ImportError, TypeError):
            if issubclass(import_string(name), import_string(base)):
                return True
    return False


@check(CHECKS)
def check_call_middleware() -> Iterator[CheckMessage]:
    for name in settings.CALL_MIDDLEWARE:
        try:
            CallMiddleware.load(name, lambda request: HttpResponse())
        except (ImportError, ImproperlyConfigured) as error:
            hint = "Name middleware as in MIDDLEWARE; it has to be sync_capable."
            yield problem("E049", f"CALL_MIDDLEWARE: {error}", hint)
    for name in django_settings.MIDDLEWARE if mounted() else ():
        if name not in settings.CALL_MIDDLEWARE and traits_of_name(name).keeps_caller:
            text = f"{name} keeps the current user, but does not see the user of MCP calls."
            yield problem(
                "W048", text, f'Add it to MCP_DJANGO["CALL_MIDDLEWARE"], if its user matters: {_added(name)}.'
            )


def _added(name: str) -> str:
    return f'[..., "{name}"]'


@check(CHECKS)
def check_missing_attributes() -> Iterator[CheckMessage]:
    """Check what the hooks of exposures read of the request and its user: middleware may have set it."""
    readers: dict[str, dict[str, None]] = {}
    missing = missing_attributes()
    for exposure in (exposure for checked in mounted() for exposure in checked.exposures.values() if missing):
        for owner in (type(exposure), type(exposure.model_admin), *exposure.options.inlines):
            for path in reads(owner, missing):
                readers.setdefault(path, {})[exposure.label] = None
    for path, labels in sorted(readers.items()):
        for name in missing[path]:
            more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
            text = f"The admin of {next(iter(labels))}{more} reads {path}, which only {name} sets."
            yield problem("W048", text, f'Add it to MCP_DJANGO["CALL_MIDDLEWARE"]: {_added(name)}.')


CHECKS += [*FIRST_CHECKS, *map(after_declarations, (*DECLARATION_CHECKS, *APPROVAL_CHECKS, *OAUTH_CHECKS))]
CHECKS += [*STORAGE_CHECKS, *map(after_declarations, TASK_CHECKS)]
DEPLOYMENT_CHECKS += [*DECLARATION_DEPLOYMENT_CHECKS, *map(after_declarations, VIEWSET_DEPLOYMENT_CHECKS)]
DEPLOYMENT_CHECKS += [*STORAGE_DEPLOYMENT_CHECKS, *OAUTH_DEPLOYMENT_CHECKS]


def run_checks(*, deployment: bool = False, **kwargs: Any) -> list[CheckMessage]:
    """Run all checks of the app, or those of ``check --deploy``."""
    chosen = DEPLOYMENT_CHECKS if deployment else CHECKS
    return [message for check in chosen for message in check(**kwargs)]
