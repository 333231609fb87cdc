"""The interface of method handlers, and their results that put off work until later."""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...context.questions import Question
from ...context.record import CallRecord
from ...context.request import MCPRequest
from ...exceptions import InsufficientScope

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True)
class Later:
    """Work that may be slow: ``work()`` gives the result, or an awaitable of it when ``is_async``."""

    work: Callable[[], Any]
    is_async: bool = False
    ends: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions that the client has to answer before the call can be, in the era in which they are requests to it."""

    questions: tuple[Question, ...]
    ends: ClassVar[str] = "asked"


@dataclass(frozen=True, slots=True)
class Listen:
    """A stream of changes that the client wants: kinds of lists ("tools", "prompts", "resources") and resources."""

    lists: frozenset[str]
    uris: tuple[str, ...]
    ends: ClassVar[str] = "ok"


# The caller's request and the validated ``params``; gives the neutral result, optional keys left out.
Handler = Callable[[MCPRequest, Mapping[str, Any]], Mapping[str, Any] | Later | Listen]


def require_scopes(request: MCPRequest, scopes: Iterable[str]) -> None:
    """Raise ``InsufficientScope`` unless the token has all the scopes."""
    if not request.mcp.scopes.issuperset(scopes):
        raise InsufficientScope(scopes)


def require_scopes_of(request: MCPRequest, uris: Iterable[str]) -> None:
    """Require the scopes that the project's own resources of these URIs take.

    What the caller's permissions do not admit takes none: it is not there.
    """
    found = (request.mcp.site.get_function_resource(request, uri) for uri in uris)
    require_scopes(request, {scope for resource in found if resource is not None for scope in resource.scopes})


def log_failure(what: str, error: Exception, record: CallRecord | None = None) -> str:
    """Log an exception that is nobody's input and return the opaque id under which an operator finds it.

    In a call it is the id of its record, which the log of calls, the admin's history and spans have too.
    """
    found = (record.id if record is not None else uuid.uuid4()).hex
    if record is not None:
        record.error_id = found
    logger.error("%r failed (error %s)", what[:64], found, exc_info=error, extra={"request_id": found})
    return found
