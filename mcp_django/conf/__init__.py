"""The app's settings, read from one dict of the project, ``MCP_DJANGO``, and from the defaults.

``from mcp_django.conf import settings`` gives an object that reads ``settings.MCP_DJANGO`` first and the defaults
second, caches what it read, and forgets it when the setting changes (``override_settings`` in tests).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .defaults import SETTINGS
from .value_kinds import Group

if TYPE_CHECKING:
    from ..problems import Problem

# The cause of a problem with a key that is not a setting.
UNKNOWN_KEY: Final = "unknown key"
# Bytes of long request bodies that a worker holds at a time, unless MAX_BODY_BYTES is larger.
WORKER_BODY_BYTES: Final = 40 * 1024**2
IMPORTS: Final = frozenset({"AUTHENTICATION_CLASSES", "SIGN_IN_FACTS"})


def faults() -> list[Problem]:
    """Return what is wrong in the configuration ``MCP_DJANGO``: unknown names, and values of a wrong kind."""
    configured = getattr(django_settings, "MCP_DJANGO", {})
    if not isinstance(configured, Mapping):
        from ..problems import Problem  # only where something is wrong

        remedy = 'It has to be a dict, such as {"BASE_URL": "https://shop.example"}.'
        return [Problem(f"MCP_DJANGO is {configured!r}.", remedy)]
    return [fault for name, value in configured.items() if (fault := _fault(name, value)) is not None]


def _fault(name: Any, value: Any) -> Problem | None:
    """Return what is wrong with one key of the configuration ``MCP_DJANGO``, None for one with a value it can have."""
    setting = SETTINGS.get(name)
    if setting is not None and setting.kind.admits(value):
        return None
    from ..problems import Problem, nearest  # only where something is wrong

    if setting is not None:
        return Problem(f"MCP_DJANGO: {name} is {value!r}.", setting.kind.hint(value))
    if name in vars(Settings):
        remedy = f"{name} is fixed: leave it out."
    else:
        remedy = nearest(name, SETTINGS).strip() or "The settings are listed in docs/settings.md."
    return Problem(f"MCP_DJANGO has no setting {name!r}.", remedy, cause=UNKNOWN_KEY)


class Settings:
    """The app's configuration as attributes: ``MCP_DJANGO`` with its defaults, and limits that no project sets.

    While one setting is wrong, none can be read, so that no request is answered under settings that nobody meant. The
    system checks report the same problems earlier.

    Raises:
        AttributeError: the name is not a setting of the app.
        ImproperlyConfigured: a setting is wrong, or names something that cannot be imported.
    """

    # Maximum characters of one long text within a page of rows.
    TEXT_CHARS = 300
    # Seconds for which a cursor, a confirmation, and the result of a call with an idempotency_key are valid.
    CURSOR_MAX_AGE = 24 * 3600
    CONFIRMATION_MAX_AGE = 600
    IDEMPOTENCY_MAX_AGE = 24 * 3600
    # Maximum bytes of rows, as they were before and after, that are kept of one change to take it back. MySQL takes
    # statements of 16 MB.
    UNDO_BYTES = 1024**2
    # Seconds that a question to the client's user stays open.
    QUESTION_TIMEOUT = 600
    # Seconds within which a request body must arrive and a call must get a thread, and for which a write waits for a
    # lock on PostgreSQL.
    BODY_TIMEOUT: float = 30
    QUEUE_TIMEOUT: float = 30
    LOCK_TIMEOUT: float = 5
    # Maximum number of one user's calls at the same time, of one user's open streams, and of all, in one worker.
    MAX_CONCURRENT_CALLS = 32
    MAX_STREAMS = 32
    MAX_WORKER_STREAMS = 10_000
    # Seconds after which an unused session ends, maximum number of one user's sessions that hold state, and of
    # resources that one stream or session can subscribe to.
    SESSION_IDLE = 7 * 24 * 3600
    MAX_SESSIONS = 50
    MAX_SUBSCRIPTIONS = 200
    # Maximum messages and bytes of a call's stream kept for a client that reconnects, and seconds kept after its end.
    # Maximum bytes of one user's streams, including calls that wait for an answer: beyond that the oldest go.
    STREAM_EVENTS = 1_000
    STREAM_BYTES = 4 * 1024**2
    STREAM_MAX_AGE = 600
    USER_STREAM_BYTES = 16 * 1024**2
    # Maximum seconds that a stream of changes stays open before its client has to open another one. A worker that its
    # server replaces waits for open streams, so none may last for ever.
    STREAM_LIFETIME = 900

    @property
    def SLOW_THREADS(self) -> int:
        """Compute the setting: writes, actions and the project's own tools that run at the same time in one worker."""
        return 2 * int(self.THREADS)

    @property
    def MAX_BODY_BYTES(self) -> int:
        """Compute the setting: bytes of a request body, as in Django; a quarter of a worker's where it has no limit."""
        limit = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        return WORKER_BODY_BYTES // 4 if limit is None else int(limit)

    @property
    def MAX_WORKER_BODY_BYTES(self) -> int:
        """Compute the setting: bytes of long bodies that a worker holds at a time; a quarter for one caller."""
        return max(WORKER_BODY_BYTES, self.MAX_BODY_BYTES)

    def __getattr__(self, name: str) -> Any:
        if name not in SETTINGS:
            raise AttributeError(f"MCP_DJANGO has no setting {name!r}")
        self.require_right()
        default = SETTINGS[name].default
        value = getattr(django_settings, "MCP_DJANGO", {}).get(name, default)
        if isinstance(SETTINGS[name].kind, Group) and value is not False:
            value = default if value is True else {**default, **value}
        if name in IMPORTS:
            value = [_import(name, item) for item in value]
        self.__dict__[name] = value
        return value

    def require_right(self) -> None:
        """Require that the configuration ``MCP_DJANGO`` is right; once found right, it counts as right until a change.
        Raises ``ImproperlyConfigured`` if a setting is wrong."""
        if "_is_right" in self.__dict__:
            return
        if found := faults():
            raise ImproperlyConfigured(" ".join(f"{fault.what} {fault.remedy}" for fault in found))
        self.__dict__["_is_right"] = True

    def reload(self) -> None:
        """Forget every value of the configuration that was read so far."""
        self.__dict__.clear()


def _import(name: str, item: Any) -> Any:
    try:
        return import_string(item) if isinstance(item, str) else item
    except ImportError as error:
        raise ImproperlyConfigured(f"MCP_DJANGO: {name} has {item!r}, which cannot be imported: {error}.") from error


def require_apps(who: str, *names: str) -> None:
    """Enforce the configuration that a module needs even to be imported: these apps in ``INSTALLED_APPS``. Raises
    ``ImproperlyConfigured`` if an app is not installed."""
    missing = [name for name in names if not apps.is_installed(name)]
    if missing:
        listed = ", ".join(f'"{name}"' for name in missing)
        raise ImproperlyConfigured(f"{who} needs {listed} in INSTALLED_APPS.")


settings = Settings()


def _reload(*, setting: str, **kwargs: Any) -> None:
    if setting == "MCP_DJANGO":
        settings.reload()


setting_changed.connect(_reload)
