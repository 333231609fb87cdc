"""Asking the client's user before something is done to rows, where the client can ask.

The question names the rows; the answer counts once, and only while what was shown is still what would be done.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..context import MCPRequest
from ..elicitation import identify
from ..questions import ELICITATION, Question

__all__ = ["CHANGED", "MAX_LABELS", "can_ask", "confirm", "listed", "rows_question", "settle"]

CONSENT: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
MAX_MESSAGE: Final = 4_000
# Rows that a question names.
MAX_LABELS: Final = 20
CHANGED: Final = (
    "Nothing was changed: what would be done is not what was shown, or confirm_token was used, has expired or belongs "
    "to another call. This is what would be done now."
)


def can_ask(request: MCPRequest) -> bool:
    """Return whether the client can ask its user."""
    return request.mcp.can("elicitation")


def listed(labels: Sequence[str], total: int) -> str:
    """Return the names of rows in one line, and how many more there are."""
    more = f" and {total - len(labels)} more" if total > len(labels) else ""
    return f"{'; '.join(labels)}{more}"


def rows_question(key: str, message: str, objects: Iterable[Any], schema: Mapping[str, Any] = CONSENT) -> Question:
    """Return a question about these very objects (see :func:`~mcp_django.elicitation.issue`)."""
    text = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
    params = {"message": text, "requestedSchema": schema}
    return Question(key=key, method=ELICITATION, params=params, proof=True, about=identify(objects))


def settle(request: MCPRequest, question: Question) -> dict[str, Any]:
    """Return what the user entered.

    Raises:
        InputRequired: it has to be asked.
        Declined: the user declined or dismissed it.
    """
    content: dict[str, Any] = request.mcp.answers.settle(question, request.mcp.version, dict)
    return content


def confirm(request: MCPRequest, message: str, objects: Iterable[Any]) -> None:
    """Return if the user has consented.

    Raises:
        InputRequired: the user has to be asked.
        Declined: the user declined or dismissed it.
    """
    settle(request, rows_question("_confirm", message, objects))
