"""System checks: what is wrong with a declaration or a setting is said at start, not when a client calls.

Ids: ``E0xx``/``W0xx`` for exposures, tools and mounts; those of ``oauth/checks.py`` are ``E1xx``/``W1xx``.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.util import find_spec
from typing import Any, Final

from django.conf import settings as django_settings
from django.contrib.admin import sites as admin_sites
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Info, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import FileSystemStorage, storages
from django.core.management import get_commands
from django.db import connections
from django.http import HttpResponse
from django.urls import NoReverseMatch, reverse
from rest_framework.authentication import SessionAuthentication

from ..conf import DEFAULTS, faults, settings
from ..context.middleware import keeps_caller, load_middleware
from ..forms.uploads import upload_storage
from ..oauth.checks import CHECKS as OAUTH_CHECKS
from ..oauth.checks import DEPLOYMENT_CHECKS as OAUTH_DEPLOYMENT_CHECKS
from ..oauth.checks import is_open_http
from ..routing import known_urlconfs, mounted_prefixes, shadowed
from .declarations import CHECKS as DECLARATION_CHECKS
from .declarations import after_declarations, all_sites, check_orders, check_random, check_ttl, mounted

Check = Callable[..., list[CheckMessage]]
# Settings that need an extra: the package that comes with it, and its name.
EXTRAS: Final = {
    "OPENTELEMETRY": ("opentelemetry", "telemetry"),
    "PROMETHEUS": ("prometheus_client", "prometheus"),
}
# The apps whose `runserver` is Django's.
WSGI_SERVERS: Final = ("django.core", "django.contrib.staticfiles")
# Characters of a description in registries and cards.
MAX_DESCRIPTION: Final = 100
# By these, packages choose the schema of a connection.
SCHEMA_METHODS: Final = ("set_schema", "set_tenant")
# How SQLite begins a transaction that has its lock from the first.
WAITING_MODES: Final = ("IMMEDIATE", "EXCLUSIVE")


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check the names and the values of ``MCP_DJANGO``; while one is wrong, nothing else is looked at."""
    if wrong := faults():
        unknown, value = "mcp_django.E001", "mcp_django.E008"
        return [Error(fault.text, hint=fault.hint, id=unknown if fault.is_unknown else value) for fault in wrong]
    found: list[CheckMessage] = []
    if settings.MAX_WORKER_BODY_BYTES < settings.MAX_BODY_BYTES:
        text = "MCP_DJANGO: MAX_WORKER_BODY_BYTES is less than MAX_BODY_BYTES."
        found.append(Error(text, hint="One body has to fit into a worker.", id="mcp_django.E008"))
    times = settings.CACHE_TTL_MS if isinstance(settings.CACHE_TTL_MS, Mapping) else {"all": settings.CACHE_TTL_MS}
    for name, ttl in times.items():
        found += check_ttl(f"CACHE_TTL_MS of {name}", ttl)
    return found


def check_authentication(**kwargs: Any) -> list[CheckMessage]:
    """Check that callers are known by what cannot be had by a page that they visit."""
    try:
        classes = settings.AUTHENTICATION_CLASSES
    except ImproperlyConfigured as error:
        return [Error(str(error), hint=f"The default is {DEFAULTS['AUTHENTICATION_CLASSES']}.", id="mcp_django.E008")]
    except RuntimeError:  # it needs the toolkit, which is not installed
        return []
    found: list[CheckMessage] = []
    if not classes and not django_settings.DEBUG:
        found.append(
            Warning(
                "The MCP endpoint is open to anyone: AUTHENTICATION_CLASSES is empty.",
                hint="Leave the setting out, and clients sign in with OAuth.",
                id="mcp_django.W002",
            )
        )
    if any(issubclass(item, SessionAuthentication) for item in classes):
        found.append(
            Error(
                "SessionAuthentication cannot sign in an MCP client: a cookie alone is never authority there.",
                hint="Name a class that reads the Authorization header.",
                id="mcp_django.E003",
            )
        )
    return found


def check_icon(**kwargs: Any) -> list[CheckMessage]:
    """Check that clients can fetch the icon of the server."""
    icon = settings.SERVER_ICON
    absolute = isinstance(icon, str) and icon.startswith(("https://", "http://", "data:image/"))
    below = isinstance(icon, str) and icon.startswith("/") and not icon.startswith("//") and settings.BASE_URL
    if icon is None or absolute or below:
        return []
    hint = 'Write a URL such as "https://shop.example/icon.png", or a path below BASE_URL such as "/static/icon.png".'
    return [Error(f"SERVER_ICON {icon!r} is not a URL.", hint=hint, id="mcp_django.E065")]


def check_description(**kwargs: Any) -> list[CheckMessage]:
    """Check what the server's card and registries would refuse."""
    found: list[CheckMessage] = []
    if len(str(settings.SERVER_DESCRIPTION or "")) > MAX_DESCRIPTION:
        hint = "Registries take no more. INSTRUCTIONS are for what models should know."
        text = f"SERVER_DESCRIPTION is longer than {MAX_DESCRIPTION} characters."
        found.append(Error(text, hint=hint, id="mcp_django.E066"))
    website = settings.SERVER_WEBSITE
    if website is not None and not (isinstance(website, str) and website.startswith(("https://", "http://"))):
        hint = 'Write a whole URL, such as "https://shop.example/mcp-help".'
        found.append(Error(f"SERVER_WEBSITE {website!r} is not a URL.", hint=hint, id="mcp_django.E067"))
    return found


def check_extras(**kwargs: Any) -> list[CheckMessage]:
    """Check that what a setting needs is installed."""
    return [
        Error(
            f"{name} is on, and {package} is not installed.",
            hint=f'pip install "django-mcp-orm[{extra}]"',
            id="mcp_django.E068",
        )
        for name, (package, extra) in EXTRAS.items()
        if getattr(settings, name) and find_spec(package) is None
    ]


def _is_channel_layer_named() -> bool:
    return "CHANNEL_LAYER" in getattr(django_settings, "MCP_DJANGO", {})


def _channel_layers() -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(django_settings, "CHANNEL_LAYERS", {})
    return found


def check_channel_layer(**kwargs: Any) -> list[CheckMessage]:
    """Check that the channel layer that the project names is there."""
    name = settings.CHANNEL_LAYER
    if not settings.EVENTS or not _is_channel_layer_named() or name is None or name in _channel_layers():
        return []
    return [
        Error(
            f"CHANNEL_LAYER is {name!r}, which CHANNEL_LAYERS does not have.",
            hint="Name one of its keys, or None for news within each worker alone.",
            id="mcp_django.E015",
        )
    ]


def check_door(**kwargs: Any) -> list[CheckMessage]:
    """Check, for a deployment, that not any host or page is answered, and that calls have limits."""
    found: list[CheckMessage] = []
    if "*" in django_settings.ALLOWED_HOSTS:
        text = "ALLOWED_HOSTS is '*': a page of any name that leads to this server can speak to the endpoint."
        found.append(Warning(text, hint="Name the hosts of the site.", id="mcp_django.W150"))
    if settings.CALL_RATE is None:
        text = "CALL_RATE is None: one user can make as many calls as the server can answer."
        found.append(Warning(text, hint=f"The default is {DEFAULTS['CALL_RATE']!r}.", id="mcp_django.W151"))
    if settings.STATEMENT_TIMEOUT is None:
        text = "STATEMENT_TIMEOUT is None: one question can keep the database busy for as long as it takes."
        hint = f"The default is {DEFAULTS['STATEMENT_TIMEOUT']!r} seconds."
        found.append(Warning(text, hint=hint, id="mcp_django.W160"))
    for origin in settings.ALLOWED_ORIGINS:
        if is_open_http(origin):
            text = f"ALLOWED_ORIGINS has {origin!r}: whoever is on the way can put a script into a page of it."
            hint = "Serve that site by TLS, and write its origin with https."
            found.append(Warning(text, hint=hint, id="mcp_django.W161"))
    return found


def check_news(**kwargs: Any) -> list[CheckMessage]:
    """Check, for a deployment, that what changes in one worker is told to the subscribers of all."""
    layer = _channel_layers().get(settings.CHANNEL_LAYER, {})
    backend = str(layer.get("BACKEND", ""))
    if not settings.EVENTS or (backend and not backend.endswith(".InMemoryChannelLayer")):
        return []
    return [
        Warning(
            "Subscribers learn only of changes made in their own worker: there is no channel layer between workers.",
            hint="Set CHANNEL_LAYERS to channels_redis, or EVENTS to False.",
            id="mcp_django.W016",
        )
    ]


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


def check_shadows(**kwargs: Any) -> list[CheckMessage]:
    """Check that no other pattern of the URLconf answers in place of an endpoint."""
    return [
        Error(
            f"The endpoint at {path!r} is never reached: {pattern!r}, which stands before it in {urlconf}, answers.",
            hint=f'Move path("{path.strip("/")}", ...) up in its urlpatterns.',
            id="mcp_django.E009",
        )
        for urlconf, path, pattern in shadowed()
    ]


def check_urlconfs(**kwargs: Any) -> list[CheckMessage]:
    """Check that an endpoint is mounted where the settings lead."""
    if mounted():
        return []
    return [
        Info(
            f"{' and '.join(map(str, known_urlconfs()))} mounts no MCP endpoint.",
            hint='Add path("mcp", mcp_django.site.urls). If middleware chooses another URLconf for some requests, such '
            "as by their host, and that one mounts it, name it in URLCONFS.",
            id="mcp_django.I045",
        )
    ]


def check_server(**kwargs: Any) -> list[CheckMessage]:
    """Tell who starts Django's own development server what it cannot do."""
    if sys.argv[1:2] != ["runserver"] or get_commands().get("runserver") not in WSGI_SERVERS or not mounted():
        return []
    return [
        Info(
            "This runserver is WSGI: clients can sign in and call tools, and there are no streams (progress, questions "
            "to the user, news of changes).",
            hint='Put "daphne" first in INSTALLED_APPS and set ASGI_APPLICATION, or run uvicorn on your asgi.py.',
            id="mcp_django.I034",
        )
    ]


def check_users(**kwargs: Any) -> list[CheckMessage]:
    """Check that users can have permissions."""
    try:
        user = get_user_model()
    except ImproperlyConfigured:  # Django says so
        return []
    if hasattr(user, "has_perm") and hasattr(user, "has_perms"):
        return []
    text = f"{user._meta.label} has no has_perm(): no tool can tell what its users may do, and every call fails."
    return [Error(text, hint="Derive it from PermissionsMixin too.", obj=user, id="mcp_django.E035")]


def check_admin_sites(**kwargs: Any) -> list[CheckMessage]:
    """Check that each admin that has a page has an endpoint too, unless its models are left out on purpose."""
    if not settings.AUTO_REGISTER:
        return []
    sites = all_sites()
    exposed = {model for checked in sites for model in checked.exposures}
    return [
        Warning(
            f"The admin site {admin_site.name!r} has models, and no endpoint exposes any of them.",
            hint="Mount an MCPSite with this admin_site, or make it the default one (AdminConfig.default_site).",
            obj=type(admin_site),
            id="mcp_django.W046",
        )
        for admin_site in admin_sites.all_sites
        if (models := {model for model, its in admin_site._registry.items() if sites[0].is_candidate(model, its)})
        and not models & exposed
        and _is_mounted(admin_site)
    ]


def check_tenants(**kwargs: Any) -> list[CheckMessage]:
    """Check that sites see the schema that middleware chooses, where a database has one for each tenant."""
    chosen = [alias for alias in connections if any(hasattr(connections[alias], name) for name in SCHEMA_METHODS)]
    return [
        Warning(
            f"Middleware chooses the tenant's schema of the database {chosen[0]!r}, and the calls of the site "
            f"{checked.name!r} do not run behind it: they do not find their tables.",
            hint='Use MCPSite(..., needs_middleware=True), or set mcp_django.site.needs_middleware = True in "mcp.py".',
            id="mcp_django.W047",
        )
        for checked in mounted()
        if chosen and not checked.needs_middleware
    ]


def check_writers(**kwargs: Any) -> list[CheckMessage]:
    """Check that transactions on SQLite wait for their turn to write: one that reads first is refused at once."""
    files: list[Any] = [found for found in connections.all() if found.vendor == "sqlite"] if mounted() else []
    return [
        Warning(
            f"A transaction of the SQLite database {found.alias!r} fails with 'database is locked' if it reads first "
            "and somebody else writes before it does; calls, and the log of calls, write too.",
            hint=f'DATABASES["{found.alias}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE"}} makes it wait.',
            id="mcp_django.W070",
        )
        for found in files
        if not found.is_in_memory_db()
        and str(found.settings_dict["OPTIONS"].get("transaction_mode")).upper() not in WAITING_MODES
    ]


def check_call_middleware(**kwargs: Any) -> list[CheckMessage]:
    """Check that middleware which keeps the current user runs around calls, and that it can."""
    found: list[CheckMessage] = []
    for name in settings.CALL_MIDDLEWARE:
        try:
            load_middleware(name, lambda request: HttpResponse())
        except (ImportError, ImproperlyConfigured) as error:
            hint = "Name middleware as in MIDDLEWARE; it has to be sync_capable."
            found.append(Error(f"CALL_MIDDLEWARE: {error}", hint=hint, id="mcp_django.E049"))
    for name in django_settings.MIDDLEWARE if mounted() else ():
        if name not in settings.CALL_MIDDLEWARE and _keeps_caller(name):
            text = f"{name} seems to keep the current user, and does not see that of MCP calls: they have no name."
            hint = f'Add it to MCP_DJANGO["CALL_MIDDLEWARE"], if its user matters: [..., "{name}"].'
            found.append(Warning(text, hint=hint, id="mcp_django.W048"))
    return found


def _keeps_caller(name: str) -> bool:
    try:
        return keeps_caller(name)
    except ImportError:  # Django's own error says more
        return False


def _is_mounted(admin_site: Any) -> bool:
    try:
        reverse(f"{admin_site.name}:index")
    except (NoReverseMatch, ImproperlyConfigured):
        return False
    return True


def check_uploads(**kwargs: Any) -> list[CheckMessage]:
    """Check that what was sent and not validated yet lies apart from what the project serves."""
    pending, served = upload_storage(), storages["default"]
    if not isinstance(pending, FileSystemStorage) or not isinstance(served, FileSystemStorage):
        return []
    root = os.path.realpath(served.location)
    if os.path.commonpath([root, os.path.realpath(pending.location)]) != root:
        return []
    return [
        Error(
            'STORAGES["mcp_uploads"] lies within the default storage, whose files may be served to anyone.',
            hint="Give it a location of its own, which no web server serves.",
            id="mcp_django.E029",
        )
    ]


def after_settings(check: Check) -> Check:
    """Return the check that finds nothing while a setting is wrong: none can be read then."""

    @wraps(check)
    def checked(**kwargs: Any) -> list[CheckMessage]:
        return [] if faults() else check(**kwargs)

    return checked


CHECKS: Final = (
    check_settings,
    *map(
        after_settings,
        (
            check_authentication,
            check_icon,
            check_description,
            check_extras,
            check_channel_layer,
            check_mounts,
            check_shadows,
            check_urlconfs,
            check_server,
            check_users,
            check_admin_sites,
            check_tenants,
            check_writers,
            check_call_middleware,
            check_uploads,
            *DECLARATION_CHECKS,
            *map(after_declarations, OAUTH_CHECKS),
        ),
    ),
)
# Those of `check --deploy`.
DEPLOYMENT_CHECKS: Final = tuple(
    map(after_settings, (check_door, check_news, check_orders, check_random, *OAUTH_DEPLOYMENT_CHECKS))
)
