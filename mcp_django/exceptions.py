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

    def within(self, name: str, place: int) -> "Repair":
        """Return the repair of a call that has the arguments to mend as an item of a list, its argument ``name``."""

        def mend(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
            items = arguments.get(name)
            if not isinstance(items, list) or not isinstance(items[place], Mapping):
                return None
            mended = self.mend(items[place])
            if mended is None:
                return None
            return {**arguments, name: [*items[:place], mended, *items[place + 1 :]]}

        return Repair(mend, self.is_spelling)


class ToolError(Exception):
    """An error that the AI model can act on: one line of cause, the valid alternatives, the next step.

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
    """Raised when the caller can see the object, but has no permission for the operation."""

    outcome = "refused:permission"


class NotConfirmed(ToolError):
    """Raised when a confirmation is not valid for the call, or no longer valid."""

    outcome = "refused:confirmation"


class Declined(ToolError):
    """Raised when the client's user declines a question (``action`` "decline") or dismisses it ("cancel")."""

    outcome = "refused:confirmation"

    def __init__(self, action: str = "decline") -> None:
        said = "dismissed the question" if action == "cancel" else "declined"
        super().__init__(f"The user {said}. Nothing was changed.")
        self.action = action


class CallRefused(Exception):
    """Raised when the operators of the site refuse the call, by a switch, a budget or a signal receiver.

    ``message`` is for the caller; ``reason`` is one word for the log of calls: its outcome is ``refused:<reason>``.
    """

    def __init__(self, message: str, reason: str = "signal") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


class MiddlewareFailed(Exception):
    """Raised when middleware of ``CALL_MIDDLEWARE`` fails around a call; ``has_run`` says that the call had ended.

    ``told`` is the text for the caller, without the error's own."""

    def __init__(self, name: str, has_run: bool) -> None:
        super().__init__(f"{name} of CALL_MIDDLEWARE failed")
        end = ", so nothing was done" if not has_run else " after the call: look at the data before you repeat it"
        self.told = f"The project's CALL_MIDDLEWARE failed{end}."


class Unreadable(ToolError):
    """Raised when a row has a value that cannot be read from the database: a write could not leave it as it is."""

    def __init__(self) -> None:
        super().__init__(
            "This record holds a value that cannot be read from the database, so it cannot be used here; get_record "
            "shows the others. Nothing was changed."
        )


class NotFound(Exception):
    """Raised when the object does not exist for this caller, whether missing, filtered out or forbidden."""


class AuthenticationFailed(Exception):
    """Raised when the credentials of a request are missing (``invalid=False``) or not valid (RFC 6750, section 3).

    ``reason`` says why, for the log; its ``told`` is the part that the client may know.
    """

    def __init__(self, *, invalid: bool, reason: "Problem | None" = None) -> None:
        super().__init__("invalid token" if invalid else "no token")
        self.invalid = invalid
        self.reason = reason


class InsufficientScope(Exception):
    """Raised when the token lacks scopes; ``required`` are all that the operation needs (RFC 6750, section 3.1)."""

    def __init__(self, required: Iterable[str]) -> None:
        self.required = frozenset(required)
        super().__init__("insufficient scope: " + " ".join(sorted(self.required)))


class Cancelled(BaseException):
    """Raised at the next progress report once the client has gone, so that an open transaction rolls back.

    It is a ``BaseException``, so that a tool's own ``except Exception`` does not carry on with work nobody waits for.
    """


class InputRequired(BaseException):
    """Raised when a call needs answers to these questions first; it then runs again from its beginning.

    It is a ``BaseException``, so that open transactions roll back and a tool's own ``except Exception`` does not
    swallow it.
    """

    def __init__(self, questions: Iterable[Any]) -> None:
        self.questions: tuple[Any, ...] = tuple(questions)
        super().__init__(", ".join(question.key for question in self.questions))

    @classmethod
    def together(cls, steps: Iterable[Callable[[], Any]]) -> list[Any]:
        """Run steps that each may ask a question; return their results, or raise one exception with all questions."""
        found: list[Any] = []
        questions: list[Any] = []
        for step in steps:
            try:
                found.append(step())
            except cls as asked:
                questions += asked.questions
        if questions:
            raise cls(questions)
        return found

    @classmethod
    def merged(cls, error: BaseException) -> BaseException:
        """Return one exception for a group of tasks that have asked at the same time.

        If the group has other errors too, return those; return any other error as it is.
        """
        if not isinstance(error, BaseExceptionGroup):
            return error
        asked, rest = error.split(cls)
        if asked is None:
            return error
        if rest is not None:
            return rest
        questions: list[Any] = []
        waiting: list[Any] = [asked]
        while waiting:
            found = waiting.pop(0)
            if isinstance(found, BaseExceptionGroup):
                waiting = [*found.exceptions, *waiting]
            else:
                questions += found.questions
        return cls(questions)


class AlreadyRegistered(ImproperlyConfigured):
    """Raised when the model, tool, resource or prompt is registered already."""


class NotRegistered(ImproperlyConfigured):
    """Raised when the model, tool, resource or prompt to unregister is not registered."""
