"""The yes of a person: calls that only their user can confirm, signed in to the site, on a page of it.

The setting ``CONFIRM`` says which calls these are, or the option ``confirm`` of an exposure, an action or a function
tool. Such a call ends where it would ask: :class:`PersonNeeded` leaves its transaction. The server keeps the call, and
runs it again with a :class:`Consent` once the person has said yes on the page. Nothing that a client sends is a yes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.translation import gettext_noop

from ..conf import settings
from ..conf.value_kinds import confirmers
from ..exceptions import ToolError
from .confirmation import Confirmation
from .previews import Preview
from .request import MCPRequest
from .tool_results import ToolResult

PERSON: Final = "person"
# Why a call that a person has confirmed is not made.
CHANGED: Final = gettext_noop("The rows have changed since the user was asked: it would no longer do what was shown.")


class PersonNeeded(BaseException):
    """Raised when a call has to wait until a person has confirmed it on a page.

    It is a ``BaseException``, so that open transactions roll back and a tool's own ``except Exception`` does not
    swallow it. ``digest`` is that of the call as ``preview`` shows it.
    """

    def __init__(self, digest: str, preview: Preview) -> None:
        super().__init__("a person has to confirm this")
        self.digest = digest
        self.preview = preview


@dataclass(slots=True)
class Consent:
    """The yes of a person under which a call runs.

    ``digest`` is that of the call as they were shown it, ``change`` the number of the request, and ``by`` their name.
    The write puts what it has done into ``done``, as columns of a change. ``is_late`` says that somebody else has
    decided before. ``approver`` is the user who decided, if that is not the caller.
    """

    digest: str
    change: int
    by: str
    is_late: bool = False
    approver: Any = None
    done: dict[str, Any] = field(default_factory=dict)


class PersonConfirmation(Confirmation):
    """The confirmation of a call that only a person can confirm, on a page: no answer of a client, and no token."""

    def confirm(self, token: Any, preview: Preview, *, again: bool = False) -> ToolResult | None:
        """Return None if a person has confirmed exactly this call.

        Raises:
            PersonNeeded: nobody has been asked yet.
            ToolError: the call would no longer do what the person was shown.
        """
        consent = self.request.mcp.consent
        digest = digest_of(self)
        if consent is None:
            raise PersonNeeded(digest, preview)
        if consent.digest != digest:
            raise ToolError(CHANGED)
        return None

    def ask(self, message: str) -> None:
        """Return if a person has confirmed the call, or raise as :meth:`confirm` does."""
        self.confirm(None, Preview(message, message, {}))


def digest_of(confirmation: Confirmation) -> str:
    """Return what a confirmation is for, the call and its objects, as a digest."""
    return confirmation.question(Confirmation.KEY, "").about


def confirmation_class(request: MCPRequest, *, by_person: bool) -> type[Confirmation]:
    """Return the class of a confirmation: ``by_person`` says that only a person can give it. Where one has done so, the
    class stays, whatever was declared since. A call that waits for the yes of another person asks only them."""
    approvals = request.mcp.approvals
    by_person = by_person or request.mcp.consent is not None or (approvals is not None and approvals.is_needed)
    return PersonConfirmation if by_person else Confirmation


def needs_person(*declared: Any, deletes: bool = False, rows: int = 0) -> bool:
    """Return whether only a person can confirm a call that asks.

    The first of the declared options that is not None decides, or else the setting ``CONFIRM``: "person" or "model", or
    a dict that says it for all, for deletions, and for more than so many rows.
    """
    rule = settings.CONFIRM
    for option in reversed(declared):
        if option is not None:
            rule = option
    # Each list of tools asks for each tool: the check for a text is the cheaper one.
    if isinstance(rule, str):
        return rule == PERSON
    if not isinstance(rule, Mapping):
        return False
    if rule.get("all") == PERSON or (deletes and rule.get("delete") == PERSON):
        return True
    most = rule.get("rows")
    return most is not None and rows > most


def wrong_confirmer(declared: Any) -> str:
    """Return what an option ``confirm`` has to be, "" if it is that."""
    kind = confirmers()
    return "" if declared is None or kind.admits(declared) else kind.hint(declared)


def may_need_person(*declared: Any) -> bool:
    """Return whether there are calls under the first of the declared options that only a person can confirm."""
    rule = next((option for option in declared if option is not None), settings.CONFIRM)
    if isinstance(rule, Mapping):
        return PERSON in rule.values() or "rows" in rule
    return bool(rule != "model")
