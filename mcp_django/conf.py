"""The app's settings: one dict, ``MCP_DJANGO``, over one table of defaults.

``from mcp_django.conf import settings`` gives an object that reads ``settings.MCP_DJANGO`` first and :data:`DEFAULTS`
second, caches what it read, and forgets it when the setting changes (``override_settings`` in tests).
"""

from typing import Any, Final

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

__all__ = ["DEFAULTS", "Settings", "settings"]

DEFAULTS: Final[dict[str, Any]] = {
    # Scheme, host and port that clients use, with no trailing slash. None: taken from the request, in DEBUG only.
    "BASE_URL": None,
    # URLconfs that mount endpoints beside ROOT_URLCONF, where middleware chooses one, such as by the host.
    "URLCONFS": (),
    # What the server calls itself to clients.
    "SERVER_NAME": "django",
    "SERVER_TITLE": None,
    "SERVER_VERSION": "1",
    # URL of an image of the server, PNG or SVG; or its path below BASE_URL, such as "/static/icon.png".
    "SERVER_ICON": None,
    # Sentences put before the generated instructions.
    "INSTRUCTIONS": "",
    # Expose every ModelAdmin of the default admin site that is not registered explicitly.
    "AUTO_REGISTER": True,
    # DRF authentication classes, in order. Empty: open to anyone, for tests and fixtures only.
    "AUTHENTICATION_CLASSES": ["mcp_django.oauth.bearer.BearerAuthentication"],
    # What the consent's sign-in leaves with the tokens for hooks to find: classes of signin.SignInFact.
    "SIGN_IN_FACTS": ["mcp_django.signin.OTPDevice"],
    # A new password ends all that clients were granted before it.
    "REVOKE_ON_PASSWORD_CHANGE": True,
    # Middleware that runs around each call too, in its thread and with the token's user as request.user.
    "CALL_MIDDLEWARE": (),
    # No write tool is listed or callable, whatever else is set.
    "READ_ONLY": False,
    # "plain" declares arguments that are objects of any members (filters, values, form ...) as their JSON text, for
    # clients whose strict modes have no such objects; "full" as objects.
    "SCHEMAS": "full",
    # Most tools of one caller; beyond it admin actions are reached through run_action alone.
    "TOOL_BUDGET": 40,
    # Rows of a page when the client does not say, and at most.
    "PAGE_SIZE": 20,
    "MAX_PAGE_SIZE": 200,
    # Characters of one result, and of one long text within a row.
    "RESULT_CHARS": 40_000,
    "TEXT_CHARS": 300,
    # Rows that one call may change, delete or run an action on.
    "MAX_BULK_ROWS": 1_000,
    # Seconds for which the result of a call with an idempotency_key is kept.
    "IDEMPOTENCY_MAX_AGE": 24 * 3600,
    # Seconds that the queries of one read may take, None: no limit; and the most that PostgreSQL may estimate as the
    # cost of one of them (EXPLAIN before each), None: not asked.
    "STATEMENT_TIMEOUT": 5,
    "MAX_QUERY_COST": None,
    # Seconds that a write waits for a lock on PostgreSQL, None: as the database has it.
    "LOCK_TIMEOUT": 5,
    # Bytes of a file that a file resource returns.
    "MAX_FILE_BYTES": 5 * 1024 * 1024,
    # Bytes of a file that is written; it is held in memory. Files of one user at upload URLs, as "number/period".
    "MAX_UPLOAD_BYTES": 5 * 1024 * 1024,
    "UPLOAD_RATE": "120/h",
    # Give URLs by which the user's own files can be downloaded for ten minutes.
    "DOWNLOAD_LINKS": True,
    # Seconds that a cursor and a confirmation token stay valid.
    "CURSOR_MAX_AGE": 24 * 3600,
    "CONFIRMATION_MAX_AGE": 600,
    # Bytes of a request body, and seconds in which it must arrive.
    "MAX_BODY_BYTES": 2_621_440,
    "BODY_TIMEOUT": 30,
    # Bytes of the long bodies that one worker reads or works on at the same time; a quarter of them for one caller.
    "MAX_WORKER_BODY_BYTES": 40 * 1024 * 1024,
    # Origins of browsers that may call the endpoint (scheme://host[:port]).
    "ALLOWED_ORIGINS": [],
    # Threads for reads, and for the project's own tools and actions.
    "THREADS": 4,
    "SLOW_THREADS": 8,
    # Seconds that one call may take, and wait for a thread (not under WSGI).
    "CALL_TIMEOUT": 60,
    "QUEUE_TIMEOUT": 30,
    # Calls of one user, as "number/period" (s, m, h, d); None: no limit.
    "CALL_RATE": "1200/m",
    # Calls of one user that run at the same time in one worker.
    "MAX_CONCURRENT_CALLS": 32,
    # Dynamic client registration: "open", "authenticated" or "off"; its rates by address and in total.
    "REGISTRATION": "open",
    "REGISTRATION_RATE": "30/h",
    "REGISTRATION_TOTAL_RATE": "600/h",
    # Requests that the token and revocation endpoints refuse to one client at one address; five times as many of an
    # address, whatever the client. None: no limit.
    "TOKEN_REFUSAL_RATE": "60/m",
    # Milliseconds that a client may keep a list before it asks again (2026-07-28, server/utilities/caching), or a dict
    # of them by list: tools, prompts, resources, templates, read, discover. Changes are told to those who listen.
    "CACHE_TTL_MS": {"tools": 60_000, "prompts": 60_000, "templates": 60_000, "discover": 60_000},
    # Give clients of the handshake era a session, which questions, subscriptions and resumed streams need.
    "SESSIONS": True,
    # Seconds that a session may lie unused, and sessions with something to remember that one user may have.
    "SESSION_IDLE": 7 * 24 * 3600,
    "MAX_SESSIONS": 50,
    # Open streams of one user and of all users in one worker.
    "MAX_STREAMS": 32,
    "MAX_WORKER_STREAMS": 10_000,
    # Resources that one stream or session may subscribe to.
    "MAX_SUBSCRIPTIONS": 200,
    # What is kept of a call's stream for a client that reconnects: events, bytes, and seconds after its end.
    "STREAM_EVENTS": 1_000,
    "STREAM_BYTES": 4 * 1024 * 1024,
    # Bytes of the streams of one user, calls that wait for an answer included; beyond it the oldest go.
    "USER_STREAM_BYTES": 16 * 1024 * 1024,
    "STREAM_MAX_AGE": 600,
    # Seconds that a question to the client's user stays open.
    "QUESTION_TIMEOUT": 600,
    # Tell subscribers of changes to exposed models, and the channel layer that carries the news between workers.
    "EVENTS": True,
    "CHANNEL_LAYER": "default",
    # Completions of one user, as "number/period"; None: no limit beside CALL_RATE.
    "COMPLETION_RATE": "600/m",
}

IMPORTS: Final = frozenset({"AUTHENTICATION_CLASSES", "SIGN_IN_FACTS"})


class Settings:
    """Attribute access to ``MCP_DJANGO`` with its defaults.

    Raises:
        AttributeError: the name is not a setting of the app.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in DEFAULTS:
            raise AttributeError(f"MCP_DJANGO has no setting {name!r}")
        value = getattr(django_settings, "MCP_DJANGO", {}).get(name, DEFAULTS[name])
        if name in IMPORTS:
            value = [import_string(item) if isinstance(item, str) else item for item in value]
        self.__dict__[name] = value
        return value

    def reload(self) -> None:
        """Forget every value read so far."""
        self.__dict__.clear()


settings = Settings()


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        settings.reload()


setting_changed.connect(_reload)
