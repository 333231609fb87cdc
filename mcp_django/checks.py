"""System checks: what is wrong with a declaration or a setting is said at start, not when a client calls.

Ids: ``E0xx``/``W0xx`` for exposures, tools and mounts; those of ``oauth/checks.py`` are ``E1xx``/``W1xx``.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.conf import settings as django_settings
from django.contrib.admin import sites as admin_sites
from django.core.checks import CheckMessage, Error, Info, Warning, register
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections
from django.http import HttpResponse
from django.urls import NoReverseMatch, reverse
from rest_framework.authentication import SessionAuthentication

from .callmiddleware import keeps_caller, load_middleware
from .conf import DEFAULTS, settings
from .exposures import ModelExposure
from .indexes import is_served
from .mounts import known_urlconfs, mounted_prefixes, mounted_sites
from .oauth.checks import CHECKS as OAUTH_CHECKS
from .ordering import declared_ordering
from .rates import parse_rate
from .resources.caching import CACHEABLE
from .sites import MCPSite, site
from .uploads import upload_storage
from .visibility import is_sensitive

__all__ = ["CHECKS"]

# Clients refuse or hide what is beyond these (VS Code 128, Cursor 40).
MANY_TOOLS: Final = 40
TOO_MANY_TOOLS: Final = 120
# Some clients put their own name for the server in front and refuse what is longer than 64 together.
LONG_TOOL_NAME: Final = 40
# Milliseconds. So long a client may go on showing what its user has lost the permission for.
LONG_TTL: Final = 3_600_000
# SQLite takes 32,766 parameters, and a composite key is several; results of calls are data of users.
MOST_ROWS: Final = 10_000
ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
MOST_SECONDS: Final = 30 * 24 * 3600
# A file that is written is held in memory.
MOST_BYTES: Final = 1024**3
# By these, packages choose the schema of a connection.
SCHEMA_METHODS: Final = ("set_schema", "set_tenant")


def mounted() -> list[MCPSite]:
    """Return every site that the URLconf mounts."""
    try:
        return mounted_sites()
    except ImproperlyConfigured:
        # There is no URLconf, or it is broken: Django's own checks say so.
        return []


def all_sites() -> list[MCPSite]:
    """Return the default site and every site that the URLconf mounts."""
    return list(dict.fromkeys([site, *mounted()]))


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


def check_icon(**kwargs: Any) -> list[CheckMessage]:
    """Check that clients can fetch the icon of the server."""
    icon = settings.SERVER_ICON
    absolute = isinstance(icon, str) and icon.startswith(("https://", "http://", "data:image/"))
    below = isinstance(icon, str) and icon.startswith("/") and not icon.startswith("//") and settings.BASE_URL
    if icon is None or absolute or below:
        return []
    hint = 'Write a URL such as "https://shop.example/icon.png", or a path below BASE_URL such as "/static/icon.png".'
    return [Error(f"SERVER_ICON {icon!r} is not a URL.", hint=hint, id="mcp_django.E065")]


def check_schemas(**kwargs: Any) -> list[CheckMessage]:
    """Check the spelling of tools' schemas."""
    if settings.SCHEMAS in ("full", "plain"):
        return []
    return [Error(f"SCHEMAS is {settings.SCHEMAS!r}.", hint='Write "full" or "plain".', id="mcp_django.E030")]


def check_rates(**kwargs: Any) -> list[CheckMessage]:
    """Check how often a caller may call, ask for completions, and send files."""
    found: list[CheckMessage] = []
    for name in ("CALL_RATE", "COMPLETION_RATE", "UPLOAD_RATE"):
        rate = getattr(settings, name)
        try:
            if rate is not None:
                parse_rate(rate)
        except (TypeError, ValueError):
            hint = 'Write a number and a period, such as "600/m", or None for no limit.'
            found.append(Error(f"{name} {rate!r} is no rate.", hint=hint, id="mcp_django.E017"))
    return found


def check_caching(**kwargs: Any) -> list[CheckMessage]:
    """Check how long clients may keep lists and contents."""
    configured = settings.CACHE_TTL_MS
    times = configured if isinstance(configured, Mapping) else {"CACHE_TTL_MS": configured}
    found: list[CheckMessage] = []
    if isinstance(configured, Mapping) and (unknown := sorted(map(str, configured.keys() - {*CACHEABLE.values()}))):
        hint = f"The lists are {', '.join(CACHEABLE.values())}."
        found.append(Error(f"CACHE_TTL_MS has no list {unknown[0]!r}.", hint=hint, id="mcp_django.E018"))
    for name, ttl in times.items():
        found += _check_ttl(f"CACHE_TTL_MS of {name}" if times is configured else name, ttl)
    for checked in all_sites():
        for exposure in checked.exposures.values():
            if exposure.cache_ttl_ms is not None:
                where = type(exposure)
                found += _check_ttl(f"{where.__name__}.cache_ttl_ms", exposure.cache_ttl_ms, where)
    return found


def _check_ttl(name: str, ttl: Any, obj: Any = None) -> Iterator[CheckMessage]:
    if type(ttl) is not int or ttl < 0:
        hint = "Write a number of milliseconds, 0 or more."
        yield Error(f"{name} is {ttl!r}, which is no time.", hint=hint, obj=obj, id="mcp_django.E018")
    elif ttl > LONG_TTL:
        yield Warning(
            f"{name} is more than an hour: so long a client may show what its user may no longer see.",
            obj=obj,
            id="mcp_django.W018",
        )


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


def check_origins(**kwargs: Any) -> list[CheckMessage]:
    """Check that each of ``ALLOWED_ORIGINS`` is one site."""
    wrong = [origin for origin in settings.ALLOWED_ORIGINS if not ORIGIN.fullmatch(str(origin))]
    hint = "An example is https://inspector.example. The origin null is that of any sandboxed page and local file."
    return [
        Error(f"ALLOWED_ORIGINS has {origin!r}, which is no origin of one site.", hint=hint, id="mcp_django.E149")
        for origin in wrong
    ]


@register(deploy=True)
def check_door(**kwargs: Any) -> list[CheckMessage]:
    """Check, for a deployment, that not any host is answered, and that calls have a rate."""
    found: list[CheckMessage] = []
    if "*" in django_settings.ALLOWED_HOSTS:
        text = "ALLOWED_HOSTS is '*': a page of any name that leads to this server can speak to the endpoint."
        found.append(Warning(text, hint="Name the hosts of the site.", id="mcp_django.W150"))
    if settings.CALL_RATE is None:
        text = "CALL_RATE is None: one user can make as many calls as the server can answer."
        found.append(Warning(text, hint=f"The default is {DEFAULTS['CALL_RATE']!r}.", id="mcp_django.W151"))
    return found


@register(deploy=True)
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


def check_completions(**kwargs: Any) -> list[CheckMessage]:
    """Check that the fields whose values complete an argument are there."""
    return [
        Error(
            f"complete of {name!r} takes the values of {parameter!r} from {label}.{field}, which the site "
            f"{checked.name!r} does not expose.",
            hint='Name a field of an exposed model, such as "shop.order.status".',
            id="mcp_django.E019",
        )
        for checked in all_sites()
        for name, completer in checked.completers.items()
        for parameter, label, field in completer.fields
        if not _is_exposed(checked, label, field)
    ]


def _is_exposed(checked: MCPSite, label: str, field: str) -> bool:
    exposure = checked.exposures_by_label.get(label)
    return exposure is not None and any(field == known.name for known in exposure.opts.get_fields())


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
        found += [
            Warning(
                f"{tool.name!r} is a long name for a tool, on the site {checked.name!r}.",
                hint=f"Use at most {LONG_TOOL_NAME} characters: some clients add the server's name and take 64 in all.",
                id="mcp_django.W007",
            )
            for tool in checked.function_tools()
            if len(tool.name) > LONG_TOOL_NAME
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
    shown = dict.fromkeys([*_names(exposure, "fields"), *(field.name for field in exposure.opts.pk_fields)])
    for name in shown:
        if is_sensitive(name, exposure.model):
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


def check_limits(**kwargs: Any) -> list[CheckMessage]:
    """Check the limits of what a call may cost: a wrong one would fail every call."""
    found: list[CheckMessage] = [
        Error(
            f"{name} is {value!r}, which is no limit.",
            hint="Write a number above 0, or None for no limit.",
            id="mcp_django.E020",
        )
        for name, value in (
            ("STATEMENT_TIMEOUT", settings.STATEMENT_TIMEOUT),
            ("MAX_QUERY_COST", settings.MAX_QUERY_COST),
            ("LOCK_TIMEOUT", settings.LOCK_TIMEOUT),
        )
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0)
    ]
    return found


def check_bulk(**kwargs: Any) -> list[CheckMessage]:
    """Check what bounds calls that write: more keys than this do not fit into one query on every database."""
    found: list[CheckMessage] = []
    bounds = {"MAX_BULK_ROWS": MOST_ROWS, "IDEMPOTENCY_MAX_AGE": MOST_SECONDS, "MAX_UPLOAD_BYTES": MOST_BYTES}
    for name, most in bounds.items():
        value = getattr(settings, name)
        if type(value) is not int or not 1 <= value <= most:
            hint = f"Write a whole number from 1 to {most}."
            found.append(Error(f"{name} is {value!r}, which is no bound.", hint=hint, id="mcp_django.E025"))
    return found


def check_threads(**kwargs: Any) -> list[CheckMessage]:
    """Check what bounds the work of one worker and what is kept of it: with less no call could be answered."""
    least = {
        "THREADS": 1,
        "SLOW_THREADS": 1,
        "MAX_WORKER_BODY_BYTES": settings.MAX_BODY_BYTES,
        "USER_STREAM_BYTES": 1,
    }
    found: list[CheckMessage] = [
        Error(
            f"{name} is {getattr(settings, name)!r}, which is no bound.",
            hint=f"Write a whole number from {number}.",
            id="mcp_django.E040",
        )
        for name, number in least.items()
        if type(getattr(settings, name)) is not int or getattr(settings, name) < number
    ]
    for name in ("CALL_TIMEOUT", "QUEUE_TIMEOUT", "BODY_TIMEOUT"):
        value = getattr(settings, name)
        if type(value) not in (int, float) or value <= 0:
            hint = "Write a number of seconds above 0."
            found.append(Error(f"{name} is {value!r}, which is no time.", hint=hint, id="mcp_django.E040"))
    return found


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


@register(deploy=True)
def check_orders(**kwargs: Any) -> list[CheckMessage]:
    """Tell, for a deployment, which exposures are ordered by what no index of their model serves."""
    found: dict[Any, CheckMessage] = {}
    for checked in all_sites():
        for exposure in checked.exposures.values():
            keys = declared_ordering(exposure)
            if exposure.opts.managed and not is_served(exposure.model, keys):
                names = tuple(("-" if key.descending else "") + key.path for key in keys)
                found.setdefault((exposure.label, names), _unserved(exposure, names))
    return list(found.values())


def _unserved(exposure: ModelExposure, names: Sequence[str]) -> CheckMessage:
    local = [name for name in names if "__" not in name]
    hint = f"Add models.Index(fields={local}, name=...) to its Meta.indexes, or set another ordering on the exposure."
    if len(local) < len(names):
        hint = "No index serves an order through a relation: set another ordering on the exposure."
    return Info(
        f"No index serves the order of {exposure.label}, {', '.join(names)}: each page sorts the whole table.",
        hint=hint,
        obj=exposure.model,
        id="mcp_django.I021",
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


# `check_door`, `check_news` and `check_orders` are for deployments and register themselves.
CHECKS: Final = (
    check_settings,
    check_icon,
    check_schemas,
    check_rates,
    check_caching,
    check_origins,
    check_channel_layer,
    check_completions,
    check_mounts,
    check_urlconfs,
    check_admin_sites,
    check_tenants,
    check_call_middleware,
    check_tools,
    check_exposures,
    check_limits,
    check_threads,
    check_bulk,
    check_uploads,
    *OAUTH_CHECKS,
)
