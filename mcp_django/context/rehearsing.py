"""What a write that is only tried would do outside of the database: its mail and its files are caught.

The seams are wrappers around methods of Django's base classes and of their subclasses. The first rehearsal of a process
installs them, and they do nothing unless the code that runs is being tried: a context variable says so, so the mail and
the files of all other threads and tasks go their way. No setting is changed.

A thread that the tried code starts, and what it gives to a ``ThreadPoolExecutor``, belong to it: their mail and files
are caught too, and their writes to a database are refused, because they have connections of their own. A thread can
outlive the rehearsal; a minute later it goes its way, because a thread that serves others may have been started. Where
no transaction is open that will be rolled back, Django calls ``on_commit`` callbacks at once: these are caught too.

A backend for mail that does not inherit from Django's is caught where ``EmailMessage.send`` uses it. Not caught is what
uses no class of Django, such as Python's own ``open``, a request to another server, or a message to a queue
(``task.delay()``), and what another process or a thread that was there before does.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from types import FunctionType
from typing import Any, ClassVar, Final

from django.core.files.base import ContentFile
from django.core.files.storage import Storage
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

# Seconds for which threads that outlive a rehearsal belong to it.
AFTERWARDS: Final = 60.0
# Gets what is caught, the original method, the instance and the arguments of the call.
Instead = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CaughtMail:
    """A mail that was not sent: its subject, and the number of its recipients."""

    subject: str
    recipients: int


@dataclass(slots=True)
class Caught:
    """What the code of one tried write wanted to do outside of the database.

    That is the ``mails`` to send, the names of ``files`` to store or to delete, each once, and the ``callbacks`` that
    Django would call with no transaction among ``rolled_back``, the connections of those that will be rolled back.

    ``contents`` has the files as they would be now, by storage and name, for code that reads them again; None for one
    that would be deleted. ``elsewhere`` is around the statements of other threads that belong to the write, as
    :meth:`django.db.backends.base.base.BaseDatabaseWrapper.execute_wrapper` takes it.
    """

    elsewhere: Any = None
    rolled_back: tuple[Any, ...] = ()
    mails: list[CaughtMail] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    callbacks: list[Any] = field(default_factory=list)
    contents: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    # When the rehearsal has ended, by the monotonic clock.
    ended: float | None = None

    current: ClassVar[ContextVar["Caught | None"]] = ContextVar("mcp_django_caught", default=None)

    @classmethod
    def now(cls) -> "Caught | None":
        """Return what is caught of the code that this thread or task runs, None unless it is being tried."""
        caught = cls.current.get()
        return None if caught is None or caught.is_past else caught

    @property
    def is_past(self) -> bool:
        """Whether the rehearsal ended so long ago that what still runs has other work."""
        return self.ended is not None and time.monotonic() - self.ended > AFTERWARDS

    @contextmanager
    def as_current(self) -> Iterator[None]:
        """Catch what the code of the block does in this thread or task."""
        before = Caught.current.set(self)
        try:
            yield
        finally:
            Caught.current.reset(before)

    def mail(self, messages: Iterable[Any]) -> int:
        """Note messages in place of sending them; return their number, as a backend does."""
        mails = [CaughtMail(str(message.subject), len(message.recipients())) for message in messages]
        self.mails += mails
        return len(mails)

    def file(self, storage: Any, name: str, content: bytes | None) -> None:
        """Note a file in place of storing it; without ``content``, in place of deleting it."""
        self.contents[id(storage), name] = content
        if name not in self.files:
            self.files.append(name)


def is_rehearsing() -> bool:
    """Return whether the code that this thread or task runs is only tried: what it writes will be rolled back."""
    return Caught.now() is not None


def is_own(function: Any) -> bool:
    """Return whether a function, or a partial one, is of this app, and not of the project."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", "")).startswith("mcp_django.")


@contextmanager
def catching(elsewhere: Any) -> Iterator[Caught]:
    """Catch the mail and the files of the block; yield what is caught. An inner block catches for itself.

    For ``elsewhere`` see :class:`Caught`.
    """
    _install()
    caught = Caught(elsewhere)
    try:
        with caught.as_current():
            yield caught
    finally:
        caught.ended = time.monotonic()


# What the code gets in place of its mail and its files


def _send(caught: Caught, original: Any, message: Any, *args: Any, **kwargs: Any) -> int:
    return caught.mail([message]) if message.recipients() else 0


def _send_messages(caught: Caught, original: Any, backend: Any, email_messages: Any, *args: Any, **kwargs: Any) -> int:
    return caught.mail(email_messages or ())


def _save(caught: Caught, original: Any, storage: Any, name: str, content: Any, *args: Any, **kwargs: Any) -> str:
    caught.file(storage, name, b"".join(map(_as_bytes, content.chunks())))
    return name


def _delete(caught: Caught, original: Any, storage: Any, name: str, *args: Any, **kwargs: Any) -> None:
    caught.file(storage, name, None)


def _open(caught: Caught, original: Any, storage: Any, name: str, mode: str = "rb") -> Any:
    is_binary = "b" in mode
    if not set(mode).isdisjoint("wax+"):
        # What is written to it is lost.
        caught.file(storage, name, b"")
        return ContentFile(b"" if is_binary else "", name)
    content = caught.contents.get((id(storage), name))
    if content is None:
        return original(storage, name, mode)
    return ContentFile(content if is_binary else content.decode(), name)


def _exists(caught: Caught, original: Any, storage: Any, name: str) -> Any:
    key = id(storage), name
    if key in caught.contents:
        return caught.contents[key] is not None
    return original(storage, name)


def _size(caught: Caught, original: Any, storage: Any, name: str) -> Any:
    content = caught.contents.get((id(storage), name))
    return original(storage, name) if content is None else len(content)


def _on_commit(caught: Caught, original: Any, connection: Any, func: Any, *args: Any, **kwargs: Any) -> None:
    if connection in caught.rolled_back or is_own(func):
        original(connection, func, *args, **kwargs)
    else:
        caught.callbacks.append(func)


def _start(caught: Caught, original: Any, thread: Any) -> None:
    thread.run = _belonging(caught, thread.run)
    original(thread)


def _submit(caught: Caught, original: Any, executor: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    if not is_own(function):
        function = _belonging(caught, function)
    # A thread of the pool that starts now serves others later.
    before = Caught.current.set(None)
    try:
        return original(executor, function, *args, **kwargs)
    finally:
        Caught.current.reset(before)


def _belonging(caught: Caught, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for another thread, as a part of the write that is tried here."""

    def watch(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if caught.is_past:
            return execute(sql, params, many, context)
        return caught.elsewhere(execute, sql, params, many, context)

    def run(*args: Any, **kwargs: Any) -> Any:
        with caught.as_current(), ExitStack() as stack:
            for connection in connections.all():
                stack.enter_context(connection.execute_wrapper(watch))
            return function(*args, **kwargs)

    return run


def _as_bytes(chunk: Any) -> bytes:
    return chunk.encode() if isinstance(chunk, str) else bytes(chunk)


# The seams

# The documented methods of a storage that its classes implement, and that of a backend for mail.
_SEAMS: Final[dict[type, dict[str, Instead]]] = {
    BaseEmailBackend: {"send_messages": _send_messages},
    Storage: {"_save": _save, "_open": _open, "delete": _delete, "exists": _exists, "size": _size},
}
_installing: Final = threading.Lock()
_installed: Final[set[type]] = set()


def _install() -> None:
    """Install the seams, unless they are there."""
    with _installing:
        if _installed:
            return
        _wrap(EmailMessage, "send", _send)
        _wrap(BaseDatabaseWrapper, "on_commit", _on_commit)
        _wrap(threading.Thread, "start", _start)
        _wrap(ThreadPoolExecutor, "submit", _submit)
        for base, seams in _SEAMS.items():
            for kind in _with_subclasses(base):
                for name, instead in seams.items():
                    _wrap(kind, name, instead)
            _follow(base, seams)
            _installed.add(base)


def _with_subclasses(kind: Any) -> Iterator[type]:
    yield kind
    for other in kind.__subclasses__():
        yield from _with_subclasses(other)


def _follow(base: Any, seams: dict[str, Instead]) -> None:
    """Have the seams also in subclasses that are made later: a backend is often imported for its first mail."""

    def __init_subclass__(cls: type, **kwargs: Any) -> None:
        super(base, cls).__init_subclass__(**kwargs)
        for name, instead in seams.items():
            _wrap(cls, name, instead)

    base.__init_subclass__ = classmethod(__init_subclass__)


def _wrap(kind: Any, name: str, instead: Instead) -> None:
    """Wrap a method where a class defines it itself; a class that inherits it has the wrapper of its base."""
    original = vars(kind).get(name)
    # What else a class may have there, such as a static method, does not get the instance.
    if not isinstance(original, FunctionType):
        return

    @wraps(original)
    def seam(self: Any, *args: Any, **kwargs: Any) -> Any:
        caught = Caught.now()
        if caught is None:
            return original(self, *args, **kwargs)
        return instead(caught, original, self, *args, **kwargs)

    setattr(kind, name, seam)
