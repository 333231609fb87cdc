"""What the parts that make a call ask about approvals: whether the call has to wait for the yes of another person."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Unforeseen(BaseException):
    """Raised before a statement of a write that no check has foreseen: hooks of the project write rows of which a rule
    is. The write is rolled back, and checked again, which then takes this rule into account.

    It is a ``BaseException``, so that a hook's own ``except Exception`` does not swallow it.
    """


class ApprovalCheck(Protocol):
    """The approval rules that may concern one call (``request.mcp.approvals``; None where no rule does).

    The part that knows what the call does checks it, before anything is changed. If a rule applies, ``is_needed`` is
    True from then on: the call then asks as one that only a person can confirm, and what it would have shown is kept
    for those who decide. While the call runs under the yes of such a person, the checks make sure that no rule forbids
    it by now, and that this person may decide by all that apply. ``told`` says of a call that was only tried what it
    has to wait for.

    All methods raise ``ToolError`` if a rule forbids the call.
    """

    @property
    def is_needed(self) -> bool:
        """Whether a rule applies that wants the yes of another person."""

    def check_write(self, write: Any, footprint: Any, make: Callable[[], Any]) -> Any:
        """Check a prepared write, whose rows are in the footprint; ``make`` returns it anew, to try it.

        Returns the trial, None if none was needed.
        """

    def guard(self) -> AbstractContextManager[None]:
        """Return the block in which a checked write is performed: it raises ``Unforeseen`` instead of writing rows that
        rules are about and that the check has not seen."""

    def check_trial(self, make: Callable[[], Any]) -> Any:
        """Try a write that the caller only wants to try, and return the trial, checked."""

    def check_action(self, call: Any, arguments: Mapping[str, Any]) -> None:
        """Check an action on the rows that its call has selected, with its arguments and the values of its form."""

    def check_arguments(self, arguments: Mapping[str, Any], label: str = "", kind: str = "") -> None:
        """Check a call of which nothing is known but its arguments, and the label of its model and what it does to a
        row, "create", "update" or "delete", if it has them."""

    @property
    def surprise(self) -> str:
        """Why a call was undone by ``guard()`` that cannot be tried, in a sentence."""

    @property
    def told(self) -> str:
        """What the call has to wait for, in a sentence."""
