"""What the parts that make a call ask about approvals: whether the call has to wait for the yes of another person."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class ApprovalCheck(Protocol):
    """The approval rules that may concern one call (``request.mcp.approvals``; None where no rule does).

    The part that knows what the call does checks it, before anything is changed. If a rule applies, ``is_needed`` is
    True from then on: the call then asks as one that only a person can confirm, and what it would have shown is kept
    for those who decide. While the call runs under the yes of such a person, the checks only make sure that no rule
    forbids that.
    """

    is_needed: bool

    def check_write(self, write: Any, footprint: Any, make: Callable[[], Any]) -> None:
        """Check a prepared write, whose rows are in the footprint; ``make`` returns it anew, to try it.

        Raises ``ToolError`` if a rule forbids it.
        """

    def check_action(self, call: Any) -> None:
        """Check an action on the rows that its call has selected; raise ``ToolError`` if a rule forbids it."""

    def check_arguments(self, arguments: Mapping[str, Any], label: str = "") -> None:
        """Check a call of which nothing is known but its arguments, and the label of its model if it has one.

        Raises ``ToolError`` if a rule forbids it.
        """
