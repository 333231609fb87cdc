"""The interface of method handlers: what they return (``Later``, ``Asked``, ``Listen``), and what they share."""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...context.call_record import CallRecord
from ...context.questions import Question
from ...context.request import MCPRequest
from ...operating.failure_causes import place_of
from ...runtime.middleware_source import missing_attribute
from ...runtime.missing_migrations import MissingTables

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True)
class Later:
    """Result of a handler that defers slow work: ``work()`` returns the result, or an awaitable if ``is_async``."""

    work: Callable[[], Any]
    is_async: bool = False
    ends: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """Result of a method handler with questions for the client, in the era in which they are requests."""

    questions: tuple[Question, ...]
    ends: ClassVar[str] = "asked"


@dataclass(frozen=True, slots=True)
class Listen:
    """Result of ``subscriptions/listen``: the kinds of lists and the resources to watch."""

    lists: frozenset[str]
    uris: tuple[str, ...]
    ends: ClassVar[str] = "ok"


# Takes the caller's request and the validated ``params``; returns the neutral result without empty optional keys.
Handler = Callable[[MCPRequest, Mapping[str, Any]], Mapping[str, Any] | Later | Listen]


def require_scopes_of(request: MCPRequest, uris: Iterable[str]) -> None:
    """Raise ``InsufficientScope`` unless the token has all scopes that these URIs need.

    Only the project's own resources need any; those that the caller has no permission for are treated as missing.
    """
    resources = (request.mcp.site.get_function_resource(request, uri) for uri in uris)
    request.mcp.require_scopes({scope for resource in resources if resource is not None for scope in resource.scopes})


def log_failure(what: str, error: Exception, record: CallRecord | None = None) -> str:
    """Log an exception, and return the opaque id by which an operator finds it.

    For a call, it is the id of its record, which is also in the call log, the admin's history and spans.
    """
    error_id = (record.id if record is not None else uuid.uuid4()).hex
    if record is not None:
        record.error_id = error_id
        record.detail = place_of(error)
    why = missing_attribute(error)
    text = f"%r failed: {why} (error %s)" if why else "%r failed (error %s)"
    logger.error(text, what[:64], error_id, exc_info=error, extra={"request_id": error_id})
    MissingTables(error).log()
    return error_id
