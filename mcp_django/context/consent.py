"""Asking the client's user before something is done to rows, where the client can ask.

The question names the rows; the answer counts once, and only while what was shown is still what would be done.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .confirmation import identify
from .questions import ELICITATION, Question, answer_schema
from .request import MCPRequest

__all__ = [
    "CHANGED",
    "CONFIRM",
    "MAX_LABELS",
    "answers_schema",
    "can_ask",
    "can_be_direct",
    "confirm",
    "listed",
    "one_line",
    "quoted",
    "repeated",
    "rows_question",
    "settle",
]

# The key of the question for consent.
CONFIRM: Final = "_confirm"
CONSENT: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
MAX_MESSAGE: Final = 4_000
# Rows that a question names, and characters of each.
MAX_LABELS: Final = 20
MAX_QUOTED: Final = 100
# Control and format characters.
UNSEEN: Final = frozenset({"Cc", "Cf"})
QUOTES: Final = str.maketrans("“”„«»", "'''''")
# A client that cannot show the form consents for its user to what nobody has seen.
UNFILLED: Final = "Nothing was entered: fill in the form, or decline."
CHANGED: Final = (
    "Nothing was changed: what would be done is not what was shown, or confirm_token was used, has expired or belongs "
    "to another call. This is what would be done now."
)


def can_ask(request: MCPRequest) -> bool:
    """Return whether the client can ask its user."""
    return request.mcp.can("elicitation")


def one_line(text: str) -> str:
    """Return a text in one line, without characters that are not seen or that turn the direction of others."""
    parts = text.split()
    return " ".join("".join(char for char in part if unicodedata.category(char) not in UNSEEN) for part in parts)


def quoted(value: Any) -> str:
    """Return what a row or a call holds as a question quotes it: nobody may take it for the question's own words."""
    text = one_line(str(value)[: 10 * MAX_QUOTED]).translate(QUOTES)
    return f"“{text if len(text) <= MAX_QUOTED else f'{text[:MAX_QUOTED]}…'}”"


def listed(labels: Sequence[str], total: int) -> str:
    """Return the names of rows in one line, each quoted, and how many more there are."""
    more = f" and {total - len(labels)} more" if total > len(labels) else ""
    return f"{'; '.join(map(quoted, labels))}{more}"


def rows_question(key: str, message: str, objects: Iterable[Any], schema: Mapping[str, Any] = CONSENT) -> Question:
    """Return a question about these very objects (see :func:`~mcp_django.context.confirmation.issue`)."""
    text = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
    params = {"message": text, "requestedSchema": schema}
    return Question(key=key, method=ELICITATION, params=params, proof=True, about=identify(objects))


def settle(request: MCPRequest, question: Question) -> dict[str, Any]:
    """Return what the user entered.

    Raises:
        InputRequired: it has to be asked.
        Declined: the user declined or dismissed it.
    """

    def read(content: dict[str, Any]) -> dict[str, Any]:
        form = question.params["requestedSchema"]
        if form["properties"] and not form.get("required") and not content:
            raise ValueError(UNFILLED)
        return content

    entered: dict[str, Any] = request.mcp.answers.settle(question, request.mcp.version, read)
    return entered


def confirm(request: MCPRequest, message: str, objects: Iterable[Any]) -> None:
    """Return if the user has consented.

    Raises:
        InputRequired: the user has to be asked.
        Declined: the user declined or dismissed it.
    """
    settle(request, rows_question(CONFIRM, message, objects))


def can_be_direct(request: MCPRequest, questions: Sequence[Question]) -> bool:
    """Return whether the client has to be asked by results, and all of the questions can be.

    That is so for clients that cannot ask their user, and for those that were seen to answer without a form.
    """
    forms = all(question.method == ELICITATION and "requestedSchema" in question.params for question in questions)
    return forms and (not request.mcp.can("elicitation") or any(question.by_result for question in questions))


def answers_schema(request: MCPRequest, asked: Sequence[Question], without: str = "") -> dict[str, Any]:
    """Return the JSON Schema of the answers to these questions, and to those whose answers have to be repeated.

    The question with the key ``without`` is left out.
    """
    questions = {key: question for key, question in repeated(request, asked).items() if key != without}
    properties = {key: answer_schema(question) for key, question in questions.items()}
    return {"type": "object", "properties": properties, "required": list(questions)}


def repeated(request: MCPRequest, asked: Sequence[Question]) -> dict[str, Question]:
    """Return the questions of the call so far and these, by their keys."""
    return {question.key: question for question in (*request.mcp.answers.seen, *asked)}
