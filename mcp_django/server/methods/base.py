"""The interface of method handlers, and their results that put off work until later."""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...context.request import MCPRequest
from ...exceptions import InsufficientScope

if TYPE_CHECKING:
    from ...context.questions import Question

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, slots=True)
class Later:
    """Work that may be slow: ``work()`` gives the result, or an awaitable of it when ``is_async``."""

    work: Callable[[], Any]
    is_async: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions that the client has to answer before the call can be, in the era in which they are requests to it."""

    questions: "tuple[Question, ...]"


@dataclass(frozen=True, slots=True)
class Listen:
    """A stream of changes that the client wants: kinds of lists ("tools", "prompts", "resources") and resources."""

    lists: frozenset[str]
    uris: tuple[str, ...]


# The caller's request and the validated ``params``; gives the neutral result, optional keys left out.
Handler = Callable[[MCPRequest, Mapping[str, Any]], Mapping[str, Any] | Later | Listen]


def require_scopes(request: MCPRequest, scopes: Iterable[str]) -> None:
    """Check that the token has all the scopes.

    Raises:
        InsufficientScope: it has not.
    """
    if not request.mcp.scopes.issuperset(scopes):
        raise InsufficientScope(scopes)


def log_failure(what: str, error: Exception) -> str:
    """Log an exception that is nobody's input and return the opaque id under which an operator finds it."""
    identifier = uuid.uuid4().hex[:12]
    logger.error("%r failed (error %s)", what[:64], identifier, exc_info=error)
    return identifier
