"""Make a caller's request look like one from a page of the admin, as the admin's hooks expect.

That is method, form data, files, session and messages; the address of the page is ``MCPRequest.go_to``.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import unescape
from typing import Any, Final

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.messages.constants import DEFAULT_TAGS, ERROR, SUCCESS
from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import UploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from django.utils.html import strip_tags
from django.utils.safestring import SafeString

from ..context.memory_storage import fresh_session
from ..context.request import MCPRequest
from ..orm.access import ModelAccess
from ..schema.secrets import without_secrets
from .html_forms import Pair

# What stands for a message whose markup cannot be removed.
UNREADABLE: Final = "(This message is not shown: it has too much markup.)"


def as_query(entries: Iterable[Pair]) -> QueryDict:
    """Return the ``POST`` data of a page request with these entries, without files."""
    data = QueryDict(mutable=True)
    for name, value in entries:
        if not isinstance(value, UploadedFile):
            data.appendlist(name, value)
    return data


def as_files(entries: Iterable[Pair]) -> "MultiValueDict[str, UploadedFile[Any]]":
    """Return the ``FILES`` of a page request with these entries."""
    files: MultiValueDict[str, UploadedFile[Any]] = MultiValueDict()
    for name, value in entries:
        if isinstance(value, UploadedFile):
            files.appendlist(name, value)
    return files


@contextmanager
def as_page(
    request: MCPRequest, method: str, entries: Sequence[Pair] = (), messages: list[dict[str, str]] | None = None
) -> Iterator[None]:
    """Let a caller's request look like a page request of the admin: ``GET``, or ``POST`` with these entries.

    The request gets a session of its own, which is never saved; ``messages`` collects what hooks tell the user. During
    a ``GET``, the fields of the page are cached on the request.
    """
    state = vars(request)
    now: dict[str, Any] = {
        "method": method,
        "GET": QueryDict(),
        "POST": as_query(entries),
        "FILES": as_files(entries),
        "page_fields": {} if method == "GET" else None,
    }
    before = {name: state[name] for name in now if name in state}
    with fresh_session(request):
        try:
            state.update(now)
            yield
            if messages is not None:
                messages += said(request)
        finally:
            for name in now:
                state.pop(name, None)
            state.update(before)


def said(request: Any) -> list[dict[str, str]]:
    """Return the messages that hooks left on a page request, without markup."""
    messages = []
    for message in request._messages:
        text = str(message.message)
        if isinstance(message.message, SafeString):
            text = _without_markup(text)
        # A secret that is shown only once is meant for a person in the admin.
        text = without_secrets(text, is_shown_once=True)
        # Use Django's names of the levels: projects rename them for their style sheets (MESSAGE_TAGS).
        messages.append({"level": DEFAULT_TAGS.get(message.level, message.level_tag), "text": text})
    return messages


def _without_markup(html: str) -> str:
    try:
        return unescape(strip_tags(html))
    except SuspiciousOperation:
        # Django gives up on markup that takes it too long. A message must not undo what was done.
        return UNREADABLE


# Attributes of the caller's request that are not copied: how it arrived, and what could grant authority.
LEFT_OUT: Final = frozenset(
    (
        *("session", "_messages", "scope", "headers", "environ", "body", "auth", "accepted_types"),
        *("_body", "_post", "_files", "_stream", "_read_started", "_post_parse_error", "_upload_handlers", "_encoding"),
        *("_cached_user", "_acached_user", "csrf_processing_done", "_dont_enforce_csrf_checks"),
    )
)
LEFT_OUT_META: Final = frozenset(
    ("HTTP_AUTHORIZATION", "HTTP_COOKIE", "QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH")
)


def copy_caller(request: MCPRequest, copy: Any) -> None:
    """Give a new request the attributes and ``META`` of the caller's request, without what could grant authority."""
    left_out = LEFT_OUT | vars(copy).keys()
    copy.__dict__.update({name: value for name, value in vars(request).items() if name not in left_out})
    copy.META = {name: value for name, value in request.META.items() if name not in LEFT_OUT_META}


def changelist_entries(action: str, rows: Iterable[Any]) -> list[Pair]:
    """Return what a page request posts to the admin's list to run an action on rows."""
    selected = [(ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows]
    return [("action", action), ("select_across", "0"), ("index", "0"), *selected]


def changelist_request(model: ModelAccess, entries: Sequence[Pair]) -> MCPRequest:
    """Return a copy of the caller's request as a page request that posts ``entries`` to the admin's list of the model.

    The copy has its own messages and session, which are never saved. ``mcp`` is the same object, so that progress
    reaches the client. Attributes that the project's middleware has set are copied; tokens and cookies are not.
    """
    request = model.request
    copy: Any = MCPRequest()
    copy_caller(request, copy)
    copy.method = "POST"
    copy.META.update(REQUEST_METHOD="POST", SCRIPT_NAME=request.META.get("SCRIPT_NAME", ""))
    copy.META.setdefault("SERVER_NAME", "localhost")
    copy.META.setdefault("SERVER_PORT", "80")
    # CSRF does not apply: no cookie authenticates this request.
    copy._dont_enforce_csrf_checks = True
    copy.path = copy.path_info = "/"
    copy.resolver_match = request.resolver_match
    copy.go_to(model.exposure, "changelist", always=True)
    copy.POST = as_query(entries)
    copy.FILES = as_files(entries)
    copy.POST._mutable = False
    made: MCPRequest = copy
    return made


def recording(request: MCPRequest, model_admin: Any) -> AbstractContextManager[Any]:
    """Return the context for a page request that saves, in which django-reversion keeps versions."""
    create_revision = getattr(model_admin, "create_revision", None)
    if callable(create_revision):
        return create_revision(request)
    return nullcontext()


def has_failed(request: Any) -> bool:
    """Return whether the messages of a page request report an error and no success."""
    levels = {message.level for message in request._messages}
    return max(levels, default=0) >= ERROR and SUCCESS not in levels
