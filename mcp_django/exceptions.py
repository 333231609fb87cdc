"""Errors that the app raises above the protocol.

Three audiences, three families: :class:`ToolError` is read by a model (a tool result with ``isError``),
:class:`NotFound` is translated by each surface into its own one "not there" answer, and the authentication errors
become an HTTP challenge for the client program. JSON-RPC errors live in :mod:`mcp_django.protocol.errors`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from .problems import Problem


@dataclass(frozen=True, slots=True)
class Repair:
    """How a call that was refused is put right: ``mend`` makes the right arguments of those that the tool got.

    It gives None where they cannot be mended so. ``is_spelling`` says that it gives a name or a choice its right
    spelling and changes nothing else, so that it can be proposed for calls that write, too.
    """

    mend: Callable[[Mapping[str, Any]], dict[str, Any] | None]
    is_spelling: bool = True


class ToolError(Exception):
    """A failure that the model can act on: one line of cause, the valid alternatives, the next step.

    Raise it in a tool, an action or a hook; the text reaches the model as a tool result with ``isError: true``
    (specification, server/tools, Error Handling). Never put secrets, SQL or a traceback in it.

    With ``repair``, where one call is clearly meant, the model is offered that call; it is not run. ``outcome`` is what
    the log of calls says of it.
    """

    outcome = "tool_error"

    def __init__(self, message: str, *, repair: Repair | None = None) -> None:
        super().__init__(message)
        self.message, self.repair = message, repair


class NotPermitted(ToolError):
    """The caller may see what the call is about, and not do this to it."""

    outcome = "refused:permission"


class NotConfirmed(ToolError):
    """What came with the call is no confirmation of it, or not any more."""

    outcome = "refused:confirmation"


class Declined(ToolError):
    """The client's user declined a question (``action`` "decline") or dismissed it ("cancel"): nothing is done."""

    outcome = "refused:confirmation"

    def __init__(self, action: str = "decline") -> None:
        said = "dismissed the question" if action == "cancel" else "declined"
        super().__init__(
            f"The user {said}. Nothing was changed. Do not ask again unless the user wants it. (Clients that run "
            "without a person need a token that their operator makes with mcp_token --confirm-by-token.)"
        )
        self.action = action


class CallRefused(Exception):
    """Those who run the site do not let the call go on; ``message`` is for the caller.

    ``reason`` is one word for the log of calls, which has it as the outcome ``refused:<reason>``.
    """

    def __init__(self, message: str, reason: str = "signal") -> None:
        super().__init__(message)
        self.message, self.reason = message, reason


class Unreadable(ToolError):
    """A row holds a value that cannot be read, so that a write could not leave it as it is."""

    def __init__(self) -> None:
        super().__init__(
            "This record holds a value that cannot be read from the database, so it cannot be used here; get_record "
            "shows the others. Nothing was changed."
        )


class NotFound(Exception):
    """What was asked for does not exist for this caller, whether it is missing, filtered out or forbidden."""


class AuthenticationFailed(Exception):
    """The credentials of the request are missing (``invalid=False``) or not acceptable (``invalid=True``)."""

    def __init__(self, *, invalid: bool, reason: "Problem | None" = None) -> None:
        super().__init__("invalid token" if invalid else "no token")
        self.invalid, self.reason = invalid, reason


class InsufficientScope(Exception):
    """The token lacks scopes; ``required`` are all the scopes that the operation needs (RFC 6750, section 3.1)."""

    def __init__(self, required: Iterable[str]) -> None:
        self.required = frozenset(required)
        super().__init__("insufficient scope: " + " ".join(sorted(self.required)))


class Cancelled(BaseException):
    """The client has gone: raised at the next progress report, so that an open transaction rolls back.

    A ``BaseException``, so that a tool's own ``except Exception`` does not carry on with work nobody waits for.
    """


class InputRequired(BaseException):
    """The call needs answers first, and is run again from its beginning when they are there.

    A ``BaseException``, so that open transactions roll back and a tool's own ``except Exception`` does not keep it.
    """

    def __init__(self, questions: Iterable[Any]) -> None:
        self.questions: tuple[Any, ...] = tuple(questions)
        super().__init__(", ".join(question.key for question in self.questions))


class AlreadyRegistered(ImproperlyConfigured):
    """The model, tool, resource or prompt is registered already."""


class NotRegistered(ImproperlyConfigured):
    """The model, tool, resource or prompt is not registered."""
