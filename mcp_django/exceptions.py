"""Errors that the app raises above the protocol.

There are three families for three audiences. An AI model reads :class:`ToolError` (a tool result with ``isError``).
Each surface turns :class:`NotFound` into its own "not found" response. Authentication errors become an HTTP challenge
for the client program. JSON-RPC errors live in :mod:`mcp_django.protocol.errors`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from .problems import Problem


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair that an exception (:class:`ToolError`) carries: ``mend`` returns the right arguments for given ones.

    It returns None if it cannot repair them. ``is_spelling`` says that it only corrects the spelling of a name or a
    choice, so that it can also be proposed for calls that write.
    """

    mend: Callable[[Mapping[str, Any]], dict[str, Any] | None]
    is_spelling: bool = True


class ToolError(Exception):
    """Exception that the AI model can act on: one line of cause, the valid alternatives, the next step.

    Raise it in a tool, an action or a hook; the text reaches the model as a tool result with ``isError: true``
    (specification, server/tools, Error Handling). Never put secrets, SQL or a traceback in it.

    If one call is clearly meant, ``repair`` offers that call to the AI model; it is not run. ``outcome`` is the outcome
    of the call in the log of calls.
    """

    outcome = "tool_error"

    def __init__(self, message: str, *, repair: Repair | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.repair = repair


class NotPermitted(ToolError):
    """Exception: the caller may see the object of the call, but lacks the permission for the operation."""

    outcome = "refused:permission"


class NotConfirmed(ToolError):
    """One of the exceptions that tools raise: the confirmation is not valid for the call, or no longer valid."""

    outcome = "refused:confirmation"


class Declined(ToolError):
    """Exception: the client's user declined a question (``action`` "decline") or dismissed it ("cancel")."""

    outcome = "refused:confirmation"

    def __init__(self, action: str = "decline") -> None:
        said = "dismissed the question" if action == "cancel" else "declined"
        super().__init__(f"The user {said}. Nothing was changed.")
        self.action = action


class CallRefused(Exception):
    """Exception: the operators of the site refuse the call, by a switch, a budget or a signal receiver.

    ``message`` is for the caller; ``reason`` is one word for the log of calls: its outcome is ``refused:<reason>``.
    """

    def __init__(self, message: str, reason: str = "signal") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


class MiddlewareFailed(Exception):
    """Exception: middleware of ``CALL_MIDDLEWARE`` failed around a call; ``has_run`` says that the call had ended.

    ``told`` is the text for the caller, without the error's own."""

    def __init__(self, name: str, has_run: bool) -> None:
        super().__init__(f"{name} of CALL_MIDDLEWARE failed")
        end = ", so nothing was done" if not has_run else " after the call: look at the data before you repeat it"
        self.told = f"The project's CALL_MIDDLEWARE failed{end}."


class Unreadable(ToolError):
    """One of the exceptions that tools raise: a row has an unreadable value, which a write could not leave as it is."""

    def __init__(self) -> None:
        super().__init__(
            "This record holds a value that cannot be read from the database, so it cannot be used here; get_record "
            "shows the others. Nothing was changed."
        )


class NotFound(Exception):
    """Exception: the object does not exist for this caller, whether missing, filtered out or forbidden."""


class AuthenticationFailed(Exception):
    """Exception to raise for a request's credentials: they are missing (``invalid=False``), or not valid."""

    def __init__(self, *, invalid: bool, reason: "Problem | None" = None) -> None:
        super().__init__("invalid token" if invalid else "no token")
        self.invalid = invalid
        self.reason = reason


class InsufficientScope(Exception):
    """Exception: the token lacks scopes; ``required`` are all that the operation needs (RFC 6750, section 3.1)."""

    def __init__(self, required: Iterable[str]) -> None:
        self.required = frozenset(required)
        super().__init__("insufficient scope: " + " ".join(sorted(self.required)))


class Cancelled(BaseException):
    """Exception: the client has gone. Raised at the next progress report, so that an open transaction rolls back. A
    ``BaseException``, so that a tool's own ``except Exception`` does not carry on with work nobody waits for."""


class InputRequired(BaseException):
    """One of the exceptions that end a call: it needs answers first, and then runs again from its beginning. A
    ``BaseException``, so that open transactions roll back and a tool's own ``except Exception`` does not swallow it."""

    def __init__(self, questions: Iterable[Any]) -> None:
        self.questions: tuple[Any, ...] = tuple(questions)
        super().__init__(", ".join(question.key for question in self.questions))


class AlreadyRegistered(ImproperlyConfigured):
    """Exception: the model, tool, resource or prompt is registered already."""


class NotRegistered(ImproperlyConfigured):
    """Exception: the model, tool, resource or prompt is not registered."""
