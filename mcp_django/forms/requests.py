"""The request that an admin action gets: that of a person who posts the admin's list, on behalf of the caller."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.messages.constants import ERROR, SUCCESS
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from ..context.admin_page import MemoryMessages, MemorySession
from ..context.request import Exposure, MCPRequest
from .html import Pair, as_files, as_query

# Of the caller's own request: how it arrived, and what could be taken for authority.
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


def changelist_entries(action: str, rows: Iterable[Any]) -> list[Pair]:
    """Return what the admin's list posts for an action on the rows."""
    selected = [(ACTION_CHECKBOX_NAME, str(row.pk)) for row in rows]
    return [("action", action), ("select_across", "0"), ("index", "0"), *selected]


def changelist_request(request: MCPRequest, exposure: Exposure, entries: Iterable[Pair]) -> MCPRequest:
    """Return a request of the same caller that posts ``entries`` to the admin's list of the model.

    Its messages and its session are its own and are never stored. ``mcp`` is the same object, so that progress reaches
    the client; attributes that the project's middleware set are kept, tokens and cookies are not.
    """
    copy: Any = MCPRequest()
    left_out = LEFT_OUT | vars(copy).keys()
    copy.__dict__.update({name: value for name, value in vars(request).items() if name not in left_out})
    copy.method = "POST"
    copy.META = {name: value for name, value in request.META.items() if name not in LEFT_OUT_META}
    copy.META.update(REQUEST_METHOD="POST", SCRIPT_NAME=request.META.get("SCRIPT_NAME", ""))
    copy.META.setdefault("SERVER_NAME", "localhost")
    copy.META.setdefault("SERVER_PORT", "80")
    # There is no cookie that another site could have used.
    copy._dont_enforce_csrf_checks = True
    given = request.resolver_match.kwargs if request.resolver_match is not None else {}
    copy.path = _changelist_path(exposure, given)
    copy.path_info = "/" + copy.path.removeprefix(copy.META["SCRIPT_NAME"]).lstrip("/")
    try:
        copy.resolver_match = resolve(copy.path_info)
    except Resolver404:
        copy.resolver_match = request.resolver_match
    else:
        # A tenant that the URL of the endpoint names is that of the action too.
        copy.resolver_match.kwargs = {**given, **copy.resolver_match.kwargs}
    entries = list(entries)
    data = as_query(entries)
    data._mutable = False
    copy.POST = data
    copy.FILES = as_files(entries)
    copy.session = MemorySession()
    copy._messages = MemoryMessages(copy)
    made: MCPRequest = copy
    return made


def _changelist_path(exposure: Exposure, given: dict[str, Any]) -> str:
    """Return the path of the admin's list; below the same prefix as the endpoint, where it is mounted there."""
    for kwargs in (given, {}):
        with suppress(NoReverseMatch):
            return reverse(
                f"{exposure.admin_site_name}:{exposure.opts.app_label}_{exposure.opts.model_name}_changelist",
                kwargs=kwargs,
            )
    return "/"


def has_failed(request: Any) -> bool:
    """Return whether the messages of an action say that it failed: there is an error, and no success beside it."""
    levels = {message.level for message in request._messages}
    return max(levels, default=0) >= ERROR and SUCCESS not in levels
