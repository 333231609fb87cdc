"""The interface of method handlers: what they return (``Later``, ``Asked``, ``Listen``), and what they share."""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...context.call_record import CallRecord
from ...context.questions import Question
from ...context.request import MCPRequest

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True)
class Later:
    """Result of a handler that defers slow work: ``work()`` gives the result, or an awaitable if ``is_async``."""

    work: Callable[[], Any]
    is_async: bool = False
    ends: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """Result of a method handler with questions for the client as requests, in the era in which they are."""

    questions: tuple[Question, ...]
    ends: ClassVar[str] = "asked"


@dataclass(frozen=True, slots=True)
class Listen:
    """Result of a method handler, that of ``subscriptions/listen``: the kinds of lists and the resources to watch."""

    lists: frozenset[str]
    uris: tuple[str, ...]
    ends: ClassVar[str] = "ok"


# The caller's request and the validated ``params``; gives the neutral result, optional keys left out.
Handler = Callable[[MCPRequest, Mapping[str, Any]], Mapping[str, Any] | Later | Listen]


def require_scopes_of(request: MCPRequest, uris: Iterable[str]) -> None:
    """Raise ``InsufficientScope`` unless the token has all scopes of the project's own resources at these URIs.

    What the caller's permissions do not admit takes none: it is not there.
    """
    found = (request.mcp.site.get_function_resource(request, uri) for uri in uris)
    request.mcp.require_scopes({scope for resource in found if resource is not None for scope in resource.scopes})


def log_failure(what: str, error: Exception, record: CallRecord | None = None) -> str:
    """Log that a method handler failed, with its error, and return the opaque id under which an operator finds it.

    In a call it is the id of its record, which the log of calls, the admin's history and spans have too.
    """
    found = (record.id if record is not None else uuid.uuid4()).hex
    if record is not None:
        record.error_id = found
    logger.error("%r failed (error %s)", what[:64], found, exc_info=error, extra={"request_id": found})
    return found
