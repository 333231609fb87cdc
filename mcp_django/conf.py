"""The app's settings: one dict, ``MCP_DJANGO``, over one table of defaults and of what each of them can be.

``from mcp_django.conf import settings`` gives an object that reads ``settings.MCP_DJANGO`` first and :data:`SETTINGS`
second, caches what it read, and forgets it when the setting changes (``override_settings`` in tests). Each setting has
a kind of value: a description, a test, and a guess at what a wrong value was meant to be.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.functional import Promise
from django.utils.module_loading import import_string

# Kinds of values

RATE: Final = re.compile(r"([0-9]+)/([smhd])")
ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@*\s]+", re.IGNORECASE)
HOST: Final = re.compile(r"\.?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
WORDS: Final = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
PROXY_URL: Final = re.compile(r"http://([^\s/?#@:]+(:[^\s/?#@]*)?@)?[A-Za-z0-9.-]+:[0-9]{1,5}/?")
HTTPS_URL: Final = re.compile(r"https://[a-z0-9][a-z0-9.:-]*(/[\x21-\x22\x24-\x7e]*)?", re.IGNORECASE)
# What is meant by it is not known.
UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value: ``words`` end the sentence "It has to be ..."; ``meant`` gives what ``admits`` would take."""

    words: str
    admits: Callable[[Any], bool]
    meant: Callable[[Any], Any] = lambda value: UNKNOWN

    def hint(self, value: Any) -> str:
        """Return what to write in place of a value that is refused."""
        meant = self.meant(value)
        guess = f" Did you mean {meant!r}?" if meant is not UNKNOWN and self.admits(meant) else ""
        return f"It has to be {self.words}.{guess}"

    def or_none(self, meaning: str = "") -> "Kind":
        """Return the kind that admits None too, which means what is said."""
        words = f"{self.words}, or None{meaning and f' for {meaning}'}"
        return Kind(words, lambda value: value is None or self.admits(value), self.meant)


def nearest(name: Any, known: Iterable[str], least: float = 0.6) -> str:
    """Return " Did you mean ...?" with the nearest of the names, or "" where none is as near as ``least`` (to 1)."""
    found = _closest(str(name), known, least)
    return f" Did you mean {found!r}?" if found is not None else ""


def _closest(name: str, known: Iterable[str], least: float) -> str | None:
    from difflib import get_close_matches  # only where something is wrong

    by_lower = {item.lower(): item for item in known}
    found = get_close_matches(name.strip().lower(), by_lower, 1, least)
    return by_lower[found[0]] if found else None


def matching(words: str, pattern: re.Pattern[str], meant: Callable[[Any], Any] = lambda value: UNKNOWN) -> Kind:
    """Text that is all as the pattern says."""
    return Kind(words, lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None, meant)


def _as_rate(value: Any) -> Any:
    found = re.fullmatch(r"\s*([0-9][0-9_]*)\s*(?:/|per)\s*([smhd])[a-z]*\s*", str(value).lower())
    return f"{int(found[1])}/{found[2]}" if found else UNKNOWN


# Nothing that Python takes for True or False is one of them: "no" would be true.
FLAG: Final = Kind(
    "True or False", lambda value: isinstance(value, bool), lambda value: WORDS.get(str(value).strip().lower(), UNKNOWN)
)
# Translated or not.
TEXT: Final = Kind("text", lambda value: isinstance(value, str | Promise))
SO_MANY: Final = matching('a number and a period (s, m, h, d), such as "600/m"', RATE, _as_rate)
# Scheme, host and port: `null` is the origin of any sandboxed page and local file.
SITE: Final = matching("one site, such as https://inspector.example", ORIGIN)
# In lower case; with a dot before it, all below it too.
HOST_NAME: Final = matching(
    "a host, such as claude.ai, or .example.com for all of a domain",
    HOST,
    lambda value: str(value).lower().partition("://")[2].partition("/")[0] or str(value).lower(),
)
# With user and password where it asks for them.
PROXY: Final = matching(
    "the URL of an HTTP proxy, such as http://proxy.intranet:3128",
    PROXY_URL,
    lambda value: f"http://{value}".rstrip("/"),
)
# Without a user and a fragment.
HTTPS: Final = Kind(
    "an https URL, such as https://login.example",
    lambda value: isinstance(value, str) and len(value) < 256 and HTTPS_URL.fullmatch(value) is not None,
)
NAMES: Final = Kind(
    "a dict of names by name",
    lambda value: (
        isinstance(value, Mapping) and all(isinstance(text, str) and text for text in (*value, *value.values()))
    ),
)
URLS: Final = Kind(
    "a dict of https URLs by client id",
    lambda value: NAMES.admits(value) and all(map(HTTPS.admits, value.values())),
)


def _as_number(value: Any) -> Any:
    try:
        found = float(str(value).strip().replace("_", ""))
        return int(found) if found.is_integer() else found
    except (ValueError, OverflowError):
        return UNKNOWN


def whole(least: int, most: int | None = None) -> Kind:
    """A whole number within bounds."""
    words = f"a whole number from {least:,}" + (f" to {most:,}" if most is not None else "")
    return Kind(
        words, lambda value: type(value) is int and least <= value and (most is None or value <= most), _as_number
    )


def number(least: float | None = None) -> Kind:
    """A number above 0, or one that is at least ``least``."""
    words = "a number above 0" if least is None else f"a number, {least:,} or more"

    def admits(value: Any) -> bool:
        return type(value) in (int, float) and (value > 0 if least is None else least <= value) and value < 1e18

    return Kind(words, admits, _as_number)


def choice(*names: str) -> Kind:
    """One of the names."""
    words = f"{', '.join(f'{name!r}' for name in names[:-1])} or {names[-1]!r}"
    return Kind(
        words,
        lambda value: isinstance(value, str) and value in names,
        lambda value: _closest(str(value), names, 0.5) or UNKNOWN,
    )


def items(words: str, kind: Kind | None = None) -> Kind:
    """A list of values, each of the kind; text is none, as Python would take each of its characters for one."""

    def admits(value: Any) -> bool:
        return isinstance(value, list | tuple | set | frozenset) and (kind is None or all(map(kind.admits, value)))

    return Kind(f"a list of {words}", admits, lambda value: [value] if isinstance(value, str | type) else UNKNOWN)


def own_host() -> Kind:
    """A host of the project's own network in lower case, with its port where that is not 443."""

    def admits(value: Any) -> bool:
        name, colon, port = str(value).partition(":")
        is_name = isinstance(value, str) and HOST.fullmatch(name) is not None and name[0] != "."
        return is_name and (not colon or (port.isdecimal() and 0 < int(port) < 65536))

    return Kind("a host, such as login.intranet or localhost:8443", admits)


def either(one: Kind, other: Kind) -> Kind:
    """A value of one of two kinds."""

    def meant(value: Any) -> Any:
        return next((found for found in (one.meant(value), other.meant(value)) if found is not UNKNOWN), UNKNOWN)

    return Kind(f"{one.words}, or {other.words}", lambda value: one.admits(value) or other.admits(value), meant)


@dataclass(frozen=True, slots=True)
class Records(Kind):
    """A list of dicts: ``members`` are the kinds of their values by name, ``required`` those that each has to have."""

    members: Mapping[str, Kind] = field(default_factory=dict)
    required: frozenset[str] = frozenset()

    def hint(self, value: Any) -> str:
        """Return the first of what is wrong, and where."""
        found = f"It has to be {self.words}."
        if isinstance(value, list | tuple):
            told = (f"Number {number}: {wrong}" for number, item in enumerate(value, 1) if (wrong := self.wrong(item)))
            found = next(told, found)
        return found

    def wrong(self, item: Any) -> str:
        """Return what is wrong with one of them, "" for nothing."""
        if not isinstance(item, Mapping):
            return f"it has to be a dict with {', '.join(self.members)}."
        for name, value in item.items():
            if name not in self.members:
                return f"there is no member {name!r}.{nearest(name, self.members)}"
            if not self.members[name].admits(value):
                return f"{name} is {value!r}. {self.members[name].hint(value)}"
        missing = sorted(self.required.difference(item))
        return f"it lacks {', '.join(missing)}." if missing else ""


def records(words: str, members: Mapping[str, Kind], *required: str) -> Records:
    """A list of dicts with these members, of which some are required."""

    def admits(value: Any) -> bool:
        return isinstance(value, list | tuple) and not any(map(found.wrong, value))

    found = Records(f"a list of {words}", admits, members=members, required=frozenset(required))
    return found


def record(words: str, members: Mapping[str, Kind], *required: str) -> Kind:
    """A dict with these members, of which some are required."""
    wrong = records("", members, *required).wrong
    return Kind(words, lambda value: isinstance(value, Mapping) and not wrong(value))


# What a budget has for each day.
QUANTITIES: Final = ("calls", "rows_read", "rows_written", "bytes")
SPENDERS: Final = ("user", "client", "service")


def daily_budgets() -> Kind:
    """A dict from whose it is to a dict of how much, None for as much as there is."""

    def admits_one(name: Any, limits: Any) -> bool:
        kind, colon, whose = str(name).partition(":")
        is_named = isinstance(name, str) and kind in SPENDERS and bool(whose) == bool(colon)
        return (
            is_named
            and isinstance(limits, Mapping)
            and all(
                quantity in QUANTITIES and (limit is None or (type(limit) is int and limit >= 0))
                for quantity, limit in limits.items()
            )
        )

    words = (
        'a dict by "user", "client", "service" or one of them with a name ("user:ada"), each a dict of whole numbers, '
        f"0 or more, or None for no limit, by {', '.join(QUANTITIES)}"
    )
    return Kind(words, lambda value: isinstance(value, Mapping) and all(admits_one(*item) for item in value.items()))


def times(*names: str) -> Kind:
    """Milliseconds for all, or a dict of them by name."""
    one = whole(0)

    def admits(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(name in names for name in value) and all(map(one.admits, value.values()))
        return one.admits(value)

    words = f"a number of milliseconds, 0 or more, or a dict of them by {', '.join(names)}"
    return Kind(words, admits, one.meant)


# Settings

# SQLite takes 32,766 parameters, and a composite key is several; results of calls are data of users.
MOST_ROWS: Final = 10_000
MOST_SECONDS: Final = 30 * 24 * 3600
# A file that is written is held in memory.
MOST_BYTES: Final = 1024**3

# Of arguments, or of a result, in the log of calls.
MOST_CAPTURED: Final = 1024**2

# The default of each setting, and what it can be.
SETTINGS: Final[dict[str, tuple[Any, Kind]]] = {
    # Scheme, host and port that clients use, with no trailing slash. None: taken from the request, in DEBUG only.
    "BASE_URL": (None, TEXT.or_none()),
    # URLconfs that mount endpoints beside ROOT_URLCONF, where middleware chooses one, such as by the host.
    "URLCONFS": ((), items("URLconfs")),
    # What the server calls itself to clients.
    "SERVER_NAME": ("django", TEXT),
    "SERVER_TITLE": (None, TEXT.or_none()),
    "SERVER_VERSION": ("1", TEXT),
    # URL of an image of the server, PNG or SVG; or its path below BASE_URL, such as "/static/icon.png".
    "SERVER_ICON": (None, TEXT.or_none()),
    # A sentence on what the server is for, of at most 100 characters; and the URL of a page about it.
    "SERVER_DESCRIPTION": (None, TEXT.or_none()),
    "SERVER_WEBSITE": (None, TEXT.or_none()),
    # Serve a card of each endpoint (<endpoint>/server-card) and a catalog of them (/.well-known/mcp/catalog.json) to
    # anyone. Both are experimental in MCP.
    "SERVER_CARD": (False, FLAG),
    # Sentences put before the generated instructions.
    "INSTRUCTIONS": ("", TEXT),
    # Expose every ModelAdmin of the default admin site that is not registered explicitly.
    "AUTO_REGISTER": (True, FLAG),
    # DRF authentication classes, in order. Empty: open to anyone, for tests and fixtures only.
    "AUTHENTICATION_CLASSES": (
        ["mcp_django.oauth.bearer.BearerAuthentication"],
        items("classes, or their dotted names"),
    ),
    # What the consent's sign-in leaves with the tokens for hooks to find: classes of signin.SignInFact.
    "SIGN_IN_FACTS": (["mcp_django.signin.OTPDevice"], items("classes, or their dotted names")),
    # A new password ends all that clients were granted before it.
    "REVOKE_ON_PASSWORD_CHANGE": (True, FLAG),
    # Middleware that runs around each call too, in its thread and with the token's user as request.user.
    "CALL_MIDDLEWARE": ((), items("dotted names", TEXT)),
    # No write tool is listed or callable, whatever else is set.
    "READ_ONLY": (False, FLAG),
    # "plain" declares arguments that are objects of any members (filters, values, form ...) as their JSON text, for
    # clients whose strict modes have no such objects; "full" as objects.
    "SCHEMAS": ("full", choice("full", "plain")),
    # Offer "search" and "fetch" too, the tools that ChatGPT's connectors and deep research look for.
    "CHATGPT_TOOLS": (False, FLAG),
    # Most tools of one caller; beyond it admin actions are reached through run_action alone.
    "TOOL_BUDGET": (40, whole(0)),
    # Rows of a page when the client does not say, and at most.
    "PAGE_SIZE": (20, whole(1)),
    "MAX_PAGE_SIZE": (200, whole(1)),
    # Characters of one result, and of one long text within a row.
    "RESULT_CHARS": (40_000, whole(1)),
    "TEXT_CHARS": (300, whole(1)),
    # Rows that one call may change, delete or run an action on.
    "MAX_BULK_ROWS": (1_000, whole(1, MOST_ROWS)),
    # Seconds for which the result of a call with an idempotency_key is kept.
    "IDEMPOTENCY_MAX_AGE": (24 * 3600, whole(1, MOST_SECONDS)),
    # Seconds that the queries of one read may take, None: no limit; and the most that PostgreSQL may estimate as the
    # cost of one of them (EXPLAIN before each), None: not asked.
    "STATEMENT_TIMEOUT": (5, number().or_none("no limit")),
    "MAX_QUERY_COST": (None, number().or_none("no limit")),
    # Seconds that a write waits for a lock on PostgreSQL, None: as the database has it.
    "LOCK_TIMEOUT": (5, number().or_none("that of the database")),
    # Bytes of a file that a file resource returns.
    "MAX_FILE_BYTES": (5 * 1024 * 1024, whole(1)),
    # Bytes of a file that is written; it is held in memory. Files of one user at upload URLs, as "number/period".
    "MAX_UPLOAD_BYTES": (5 * 1024 * 1024, whole(1, MOST_BYTES)),
    "UPLOAD_RATE": ("120/h", SO_MANY.or_none("no limit")),
    # Give URLs by which the user's own files can be downloaded for ten minutes.
    "DOWNLOAD_LINKS": (True, FLAG),
    # Seconds that a cursor and a confirmation token stay valid.
    "CURSOR_MAX_AGE": (24 * 3600, number()),
    "CONFIRMATION_MAX_AGE": (600, number()),
    # Bytes of a request body, and seconds in which it must arrive.
    "MAX_BODY_BYTES": (2_621_440, whole(1)),
    "BODY_TIMEOUT": (30, number()),
    # Bytes of the long bodies that one worker reads or works on at the same time; a quarter of them for one caller.
    "MAX_WORKER_BODY_BYTES": (40 * 1024 * 1024, whole(1)),
    # Origins of browsers that may call the endpoint (scheme://host[:port]).
    "ALLOWED_ORIGINS": ([], items("origins, each of them one site, such as https://inspector.example", SITE)),
    # Threads for reads, and for the project's own tools and actions.
    "THREADS": (4, whole(1)),
    "SLOW_THREADS": (8, whole(1)),
    # Seconds that one call may take, and wait for a thread (not under WSGI).
    "CALL_TIMEOUT": (60, number()),
    "QUEUE_TIMEOUT": (30, number()),
    # Calls of one user, as "number/period" (s, m, h, d); None: no limit.
    "CALL_RATE": ("1200/m", SO_MANY.or_none("no limit")),
    # Calls of one user that run at the same time in one worker.
    "MAX_CONCURRENT_CALLS": (32, whole(1)),
    # Dynamic client registration: "open", "authenticated" or "off"; its rates by address and in total.
    "REGISTRATION": ("open", choice("open", "authenticated", "off")),
    "REGISTRATION_RATE": ("30/h", SO_MANY.or_none("no limit")),
    "REGISTRATION_TOTAL_RATE": ("600/h", SO_MANY.or_none("no limit")),
    # Clients that describe themselves by a document at an https URL: those of all hosts, of the named ones, of those
    # that an administrator has allowed ("ask"), or none ("off"); hosts that are refused whatever else is set.
    "CLIENT_DOCUMENTS": (
        None,
        either(choice("all", "ask", "off"), items("hosts, such as claude.ai", HOST_NAME)).or_none(
            "all while REGISTRATION is 'open', and none otherwise"
        ),
    ),
    "BLOCKED_CLIENT_HOSTS": ((), items("hosts, such as claude.ai, or .example.com for all of a domain", HOST_NAME)),
    # Hosts of the project's own network that documents and keys are fetched from too, and a file of authorities that
    # sign certificates (PEM), beside those of the system.
    "PRIVATE_CLIENT_HOSTS": ((), items("hosts, such as login.intranet or localhost:8443", own_host())),
    "CLIENT_DOCUMENT_CA": (None, TEXT.or_none("the system's authorities alone")),
    # The HTTP proxy by which this server reaches the internet; hosts of PRIVATE_CLIENT_HOSTS are reached without it.
    "CLIENT_DOCUMENT_PROXY": (None, PROXY.or_none("no proxy")),
    # Documents that are fetched for one address; five times as many of one host.
    "CLIENT_DOCUMENT_RATE": ("60/h", SO_MANY.or_none("no limit")),
    # Tell users by e-mail when an application gets access in their name for the first time.
    "CONNECTED_EMAIL": (False, FLAG),
    # Let programs without a person sign in as the service accounts that superusers make in the admin.
    "SERVICE_ACCOUNTS": (False, FLAG),
    # Identity providers whose assertions about users are taken from these clients: how users are found (by their
    # "subject", which is linked in the admin; by verified "email" the first time, or "email_staff" for staff too),
    # whether they are created, and which groups of the provider are which here.
    "IDENTITY_PROVIDERS": (
        (),
        records(
            "dicts, each with issuer, jwks_uri and clients",
            {
                "issuer": HTTPS,
                "jwks_uri": HTTPS,
                "clients": items("client ids", TEXT),
                "client_keys": URLS,
                "link": choice("subject", "email", "email_staff"),
                "create": FLAG,
                "groups": NAMES,
            },
            *("issuer", "jwks_uri", "clients"),
        ),
    ),
    # Requests that the token and revocation endpoints refuse to one client at one address; five times as many of an
    # address, whatever the client. None: no limit.
    "TOKEN_REFUSAL_RATE": ("60/m", SO_MANY.or_none("no limit")),
    # Milliseconds that a client may keep a list before it asks again (2026-07-28, server/utilities/caching), or a dict
    # of them by list: tools, prompts, resources, templates, read, discover. Changes are told to those who listen.
    "CACHE_TTL_MS": (
        {"tools": 60_000, "prompts": 60_000, "templates": 60_000, "discover": 60_000},
        times("tools", "prompts", "resources", "templates", "read", "discover"),
    ),
    # Give clients of the handshake era a session, which questions, subscriptions and resumed streams need.
    "SESSIONS": (True, FLAG),
    # Seconds that a session may lie unused, and sessions with something to remember that one user may have.
    "SESSION_IDLE": (7 * 24 * 3600, number()),
    "MAX_SESSIONS": (50, whole(1)),
    # Open streams of one user and of all users in one worker.
    "MAX_STREAMS": (32, whole(1)),
    "MAX_WORKER_STREAMS": (10_000, whole(1)),
    # Resources that one stream or session may subscribe to.
    "MAX_SUBSCRIPTIONS": (200, whole(1)),
    # What is kept of a call's stream for a client that reconnects: events, bytes, and seconds after its end.
    "STREAM_EVENTS": (1_000, whole(1)),
    "STREAM_BYTES": (4 * 1024 * 1024, whole(1)),
    # Bytes of the streams of one user, calls that wait for an answer included; beyond it the oldest go.
    "USER_STREAM_BYTES": (16 * 1024 * 1024, whole(1)),
    "STREAM_MAX_AGE": (600, number()),
    # Seconds that a question to the client's user stays open.
    "QUESTION_TIMEOUT": (600, number(0)),
    # Tell subscribers of changes to exposed models, and the channel layer that carries the news between workers.
    "EVENTS": (True, FLAG),
    "CHANNEL_LAYER": ("default", TEXT.or_none("news within each worker alone")),
    # Keep a row for each call and each refusal, which staff can see in the admin. A dict is for arguments and results:
    # "capture" is "full" or "off", "max_bytes" how much of either is kept, and "redact" the path of a function that
    # gets tool, arguments and result, and returns the last two as they may be kept.
    "CALL_LOG": (
        True,
        either(
            FLAG,
            record(
                "a dict with capture, max_bytes and redact",
                {"capture": choice("full", "off"), "max_bytes": whole(1, MOST_CAPTURED), "redact": TEXT.or_none()},
                "capture",
            ),
        ),
    ),
    # Days for which clear_mcp_calls keeps the log.
    "CALL_LOG_DAYS": (30, whole(1)),
    # Give OpenTelemetry a span and a measurement of each call; it takes the extra "telemetry".
    "OPENTELEMETRY": (False, FLAG),
    # Count calls for Prometheus, which takes the extra "prometheus"; the bearer token may read the page of metrics.
    "PROMETHEUS": (False, FLAG),
    "METRICS_TOKEN": (None, TEXT.or_none("users with a permission alone")),
    # End each query of a call with a comment that names application, client, tool and trace.
    "SQL_COMMENTS": (False, FLAG),
    # What each user, client or service account has for a day: calls, rows_read, rows_written and bytes; by their name
    # ("user:ada") what one of them has instead.
    "BUDGETS": ({}, daily_budgets()),
    # Offer the tool connection_info.
    "CONNECTION_INFO": (None, FLAG.or_none("where there are budgets, or something is switched off")),
    # Completions of one user, as "number/period"; None: no limit beside CALL_RATE.
    "COMPLETION_RATE": ("600/m", SO_MANY.or_none("no limit")),
}

DEFAULTS: Final[dict[str, Any]] = {name: default for name, (default, _) in SETTINGS.items()}
IMPORTS: Final = frozenset({"AUTHENTICATION_CLASSES", "SIGN_IN_FACTS"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a setting, and what to write instead; ``is_unknown``: there is none of that name."""

    text: str
    hint: str
    is_unknown: bool = False


def faults() -> list[Fault]:
    """Return what is wrong with ``MCP_DJANGO``: names that are no settings, and values that one cannot have."""
    configured = getattr(django_settings, "MCP_DJANGO", {})
    if not isinstance(configured, Mapping):
        hint = 'It has to be a dict, such as {"BASE_URL": "https://shop.example"}.'
        return [Fault(f"MCP_DJANGO is {configured!r}.", hint)]
    found = []
    for name, value in configured.items():
        if name not in SETTINGS:
            hint = nearest(name, SETTINGS).strip() or "The settings are listed in README.md."
            found.append(Fault(f"MCP_DJANGO has no setting {name!r}.", hint, is_unknown=True))
        elif not (kind := SETTINGS[name][1]).admits(value):
            found.append(Fault(f"MCP_DJANGO: {name} is {value!r}.", kind.hint(value)))
    return found


class Settings:
    """Attribute access to ``MCP_DJANGO`` with its defaults.

    Nothing is guessed: while one setting is wrong none can be read, so that no request is answered by what was not
    meant. The system checks say the same before.

    Raises:
        AttributeError: the name is not a setting of the app.
        ImproperlyConfigured: a setting is wrong, or names what cannot be imported.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in SETTINGS:
            raise AttributeError(f"MCP_DJANGO has no setting {name!r}")
        self.require_right()
        value = getattr(django_settings, "MCP_DJANGO", {}).get(name, SETTINGS[name][0])
        if name in IMPORTS:
            value = [_import(name, item) for item in value]
        self.__dict__[name] = value
        return value

    def require_right(self) -> None:
        """Look at all settings, once until they change.

        Raises:
            ImproperlyConfigured: one is wrong.
        """
        if "_is_right" in self.__dict__:
            return
        if found := faults():
            raise ImproperlyConfigured(" ".join(f"{fault.text} {fault.hint}" for fault in found))
        self.__dict__["_is_right"] = True

    def reload(self) -> None:
        """Forget every value read so far."""
        self.__dict__.clear()


def _import(name: str, item: Any) -> Any:
    try:
        return import_string(item) if isinstance(item, str) else item
    except ImportError as error:
        raise ImproperlyConfigured(f"MCP_DJANGO: {name} has {item!r}, which cannot be imported: {error}.") from error


def require_apps(who: str, *names: str) -> None:
    """Look whether the apps are installed without which a module cannot even be imported.

    Raises:
        ImproperlyConfigured: one is not.
    """
    missing = [name for name in names if not apps.is_installed(name)]
    if missing:
        listed = ", ".join(f'"{name}"' for name in missing)
        raise ImproperlyConfigured(f"{who} needs {listed} in INSTALLED_APPS.")


settings = Settings()


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        settings.reload()


setting_changed.connect(_reload)
