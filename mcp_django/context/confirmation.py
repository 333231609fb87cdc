"""Confirmation: tokens with which a call is repeated, and questions to the client's user before rows are changed.

A token contains a nonce and a time. What it confirms (user, client, whether the client can ask, site, tool, arguments,
the exact objects) is only in the key of its signature, so it reveals nothing and is valid for nothing else. It is
signed with ``SECRET_KEY``, verified with ``SECRET_KEY_FALLBACKS`` too, and expires after ``CONFIRMATION_MAX_AGE``
seconds. Django's default cache records its use: it is single-use across workers if they share that cache, and within
each worker otherwise.

A state (``requestState``; 2026-07-28, basic/patterns/mrtr) travels likewise between the rounds of a call that asks:
sealed, bound to the same caller, the site and the call, valid for ``QUESTION_TIMEOUT`` seconds.
:class:`~mcp_django.context.questions.Answers` decides which states are single-use.

A question names the rows. The answer counts once, and only while the call would still do what was shown.
"""

import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson
from django.core.signing import BadSignature, SignatureExpired, TimestampSigner, b62_decode
from django.db.models import Model

from ..conf import settings
from ..exceptions import InputRequired, NotConfirmed, ToolError
from ..protocol.errors import InvalidParams
from ..schema.consent import ConsentForm
from ..schema.secrets import escaped
from .previews import Preview
from .questions import CLOCK_SKEW, STATE_ERROR, UNATTENDED, Question, answer_schema, declined, use_up
from .request import MCPRequest
from .signing import Seal
from .tool_results import ToolResult

logger = logging.getLogger("mcp_django.context.confirmation")

# One text for all causes; only the log says which it was.
REFUSED: Final = (
    "This confirm_token is not valid: it was used, has expired, or belongs to another call. "
    "Nothing was changed. Repeat the call without confirm_token to get a new preview and token."
)
# The reason in the log for what another host signed by a clock that is ahead of this one's.
CLOCKS: Final = "signed in the future: set the clocks of all hosts by NTP"
# The version of a call that was tried: a text that is no row's version, and the salt of its signature.
PIN: Final = "tried"
PINS: Final = "pins."
OTHERWISE: Final = (
    "The call would no longer do what it did when it was tried: rows have changed since, the arguments are others, or "
    "it is too long ago. Nothing was changed. Try it again with dry_run."
)
MAX_TOKEN_CHARS: Final = 200
MAX_STATE_CHARS: Final = 64 * 1024
# Members of ``params`` that a state is not bound to, because they differ from round to round.
UNBOUND: Final = frozenset({"_meta", "inputResponses", "requestState"})
MAX_MESSAGE: Final = 4_000
# Maximum number of characters of a quoted value.
MAX_QUOTED: Final = 100
CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
QUOTES: Final = str.maketrans("“”„«»", "'''''")
NOT_FILLED_IN: Final = "Nobody filled in the form that was shown to confirm this. Nothing was changed."


class Confirmation:
    """The confirmation of one call of a tool that changes or deletes these objects.

    ``arguments`` are those that the confirmed call must repeat, without the token. ``objects`` are those that the call
    affects, in any order: model instances, or values that identify them. ``KEY`` is the key of the question whether the
    call shall be made.
    """

    KEY: Final = ConsentForm.FIELD
    # What every preview says of the next step, with the arguments that the repeated call needs besides those of this.
    NEXT: Final = (
        "Nothing has been changed yet. Show this to the user. "
        "After their yes, call again with the same arguments and {}."
    )
    CHANGED: Final = (
        "Nothing was changed: the call would no longer do what was shown, or confirm_token was used, has expired or "
        "belongs to another call. This is what it would do now."
    )

    def __init__(self, request: MCPRequest, tool: str, arguments: Mapping[str, Any], objects: Iterable[Any]) -> None:
        self.request = request
        self.tool = tool
        self.bound = [tool, arguments, sorted(map(_named, objects))]

    def token(self) -> str:
        """Return a token that confirms this call once."""
        self.request.mcp.record.settle("asked")
        return self._signer().sign(secrets.token_urlsafe(16))

    def has_signed(self, token: Any) -> bool:
        """Return whether a token is for this call. It may have expired, or been used."""
        try:
            return _may_be_token(token) and bool(self._signer().unsign(token))
        except BadSignature:
            return False

    def redeem(self, token: Any) -> None:
        """Redeem a confirmation token, which must be for the same caller, site, tool, arguments and objects."""
        try:
            if not _may_be_token(token):
                raise BadSignature("not a token")
            nonce = self._signer().unsign(token, max_age=self.request.mcp.answers_last(settings.CONFIRMATION_MAX_AGE))
            if self.request.mcp.task is None and _is_from_the_future(token):
                raise SignatureExpired(CLOCKS)
        except BadSignature as error:
            reason = str(error) if isinstance(error, SignatureExpired) else "not a token for this call"
            logger.info("Confirmation of %s refused: %s", self.tool, reason)
            raise NotConfirmed(REFUSED) from None
        if self.request.mcp.task is None and not use_up("confirmed", nonce, settings.CONFIRMATION_MAX_AGE):
            logger.info("Confirmation of %s refused: used", self.tool)
            raise NotConfirmed(REFUSED)

    def pin(self) -> str:
        """Return a text that holds a later call to these very objects. It confirms nothing, and may be used again."""
        return self._signer(PINS).sign(PIN)

    @staticmethod
    def is_pin(text: Any) -> bool:
        """Return whether a text is meant as a pin."""
        return isinstance(text, str) and text.startswith(f"{PIN}:")

    def check_pin(self, text: str) -> None:
        """Raise ``ToolError`` unless the call would do what it would have done when the pin was made."""
        try:
            if not _may_be_token(text):
                raise BadSignature("not a pin")
            self._signer(PINS).unsign(text, max_age=settings.CONFIRMATION_MAX_AGE)
        except BadSignature:
            raise ToolError(OTHERWISE) from None

    def _signer(self, purpose: str = "") -> TimestampSigner:
        digest = _digest([*_caller(self.request), *self.bound])
        return TimestampSigner(salt=f"mcp_django.context.confirmation.{purpose}{digest}")

    def question(self, key: str, message: str, schema: Mapping[str, Any] = ConsentForm.ONLY_CONSENT) -> Question:
        """Return the question by which the user confirms a call on these very objects, with a form of ``schema``.

        A form without a required field gets a yes or no.
        """
        params = {"message": _cut(message), "requestedSchema": ConsentForm(schema).with_consent()}
        return Question(key=key, method=Question.ELICITATION, params=params, proof=True, about=_digest(self.bound))

    def ask(self, message: str) -> None:
        """Return once the client's user has confirmed the call."""
        self.settle(self.question(self.KEY, message))

    def ask_showing(self, tell: Callable[[], str]) -> None:
        """Return once the client's user has confirmed the call; ``tell`` returns the message, if they are asked."""
        try:
            self.settle(replace(self.question(self.KEY, ""), is_about=True))
        except InputRequired as asked:
            told = _cut(tell())
            questions = [replace(item, params={**item.params, "message": told}) for item in asked.questions]
            raise InputRequired(questions) from None

    def settle(self, question: Question) -> dict[str, Any]:
        """Return what the user entered into the form of a question; raise ``Declined`` if they did not say yes."""

        def read(content: dict[str, Any]) -> dict[str, Any]:
            if ConsentForm(question.params["requestedSchema"]).is_refused(content):
                raise declined("decline")
            return {name: value for name, value in content.items() if name != self.KEY}

        mcp = self.request.mcp
        answer: dict[str, Any] = mcp.answers.settle(question, mcp.version, read)
        return answer

    def confirm(self, token: Any, preview: Preview, *, again: bool = False) -> ToolResult | None:
        """Ask for confirmation: return the preview to confirm, None once exactly these objects are confirmed.

        A client that can ask its user shows the question, which ``objects`` must tell from any other. With ``again``,
        an invalid token gives a new preview, no error; a client that can ask gets no token instead of its user's
        answer.
        """
        errors = {}
        if token is not None:
            try:
                self.redeem(token)
            except ToolError:
                if not again:
                    raise
                errors = {"errors": [self.CHANGED]}
            else:
                return None
        if self.request.mcp.can("elicitation"):
            self.ask_showing(lambda: preview.question)
            return None
        return self.preview(preview.message, {**errors, **preview.shown})

    def preview(self, message: str, shown: Mapping[str, Any], needed: str = "confirm_token", **more: Any) -> ToolResult:
        """Return the preview of a call with a confirmation token; ``needed`` are the arguments with which to repeat
        the call."""
        question = {
            "confirmation_required": True,
            "message": message,
            **shown,
            "next": self.NEXT.format(needed),
            "confirm_token": self.token(),
            "expires_in": settings.CONFIRMATION_MAX_AGE,
            **more,
        }
        return ToolResult(structured=question, is_error="errors" in shown)


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"


def _may_be_token(token: Any) -> bool:
    return isinstance(token, str) and len(token) <= MAX_TOKEN_CHARS and token.isascii()


def _is_from_the_future(signed: str) -> bool:
    return b62_decode(signed.split(":")[1]) > time.time() + CLOCK_SKEW


def _caller(request: MCPRequest) -> list[Any]:
    mcp = request.mcp
    user = request.user
    owner = [user._meta.label, str(user.pk)] if isinstance(user, Model) else ["anonymous"]
    # A token that needed no user is worth nothing to a client that can ask one.
    return [owner, mcp.client_id, mcp.site.name, mcp.resource, mcp.can("elicitation")]


def _named(item: Any) -> str:
    if isinstance(item, Model):
        return _canonical([item._meta.label, str(item.pk)])
    return _canonical(item)


def _digest(bound: list[Any]) -> str:
    return hashlib.sha256(_canonical(bound).encode()).hexdigest()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


class CallState:
    """The state of a call of ``method`` that waits for confirmation or another answer: the next ``requestState``."""

    def __init__(self, request: MCPRequest, method: str, params: Mapping[str, Any]) -> None:
        self.method = method
        self.mcp = request.mcp
        bound = {name: value for name, value in params.items() if name not in UNBOUND}
        self._seal = Seal(f"mcp_django.context.confirmation.state.{_digest([*_caller(request), method, bound])}")

    def seal(self, state: Mapping[str, Any]) -> str:
        """Return the state as a text for the client."""
        return self._seal.seal(orjson.dumps(state), unique=True)

    def open(self, text: Any) -> dict[str, Any]:
        """Read the text that came back; raise ``InvalidParams`` for any other."""
        data = self._seal.open(text, self.mcp.answers_last(settings.QUESTION_TIMEOUT), MAX_STATE_CHARS)
        # The clock of a worker may be late; when the call was made, the one of the web worker was not.
        if data is None or (self.mcp.task is None and _is_from_the_future(text)):
            reason = "not for this call, or too old" if data is None else CLOCKS
            logger.info("State of %s refused: %s", self.method, reason)
            raise InvalidParams(STATE_ERROR)
        state: dict[str, Any] = orjson.loads(data)
        return state

    def redeem(self, token: Any) -> dict[str, Any]:
        """Read the state that came back as a ``confirm_token``, which counts once; raise ``NotConfirmed`` for no such
        token."""
        try:
            state = self.open(token)
        except InvalidParams:
            raise NotConfirmed(REFUSED) from None
        if self.mcp.task is None and not use_up("answered", state["nonce"], settings.QUESTION_TIMEOUT):
            raise NotConfirmed(REFUSED)
        return state


def one_line(text: str) -> str:
    """Make a confirmation's text one line; characters that are invisible or change direction become escapes."""
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], escaped(" ".join(text.split())))


def quoted(value: Any, limit: int = MAX_QUOTED) -> str:
    """Quote a value in the text of a confirmation, so that nobody takes it for the confirmation's own words."""
    text = one_line(str(value)[: 10 * limit]).translate(QUOTES)
    return f"“{text if len(text) <= limit else f'{text[:limit]}…'}”"


class DirectAnswers:
    """The answers to a call's ``questions`` that come as arguments of the next call, from a client that shows no forms.

    These are clients that cannot ask their user, and clients that have answered without showing a form.
    """

    def __init__(self, request: MCPRequest, questions: Sequence[Question]) -> None:
        self.asks = request.mcp.can("elicitation")
        self.asked = questions
        # All that a confirmation has to repeat, by key: the questions of the call so far and these.
        self.questions = {question.key: question for question in (*request.mcp.answers.seen, *questions)}

    @property
    def suit(self) -> bool:
        """Whether the client has to confirm, or answer, in this way."""
        forms = all(item.method == item.ELICITATION and "requestedSchema" in item.params for item in self.asked)
        return forms and (not self.asks or any(item.by_result for item in self.asked))

    def check(self) -> None:
        """Raise ``NotConfirmed`` if the client can ask its user, but has accepted a form that nobody filled in, or with
        values that no form has.

        A call that may destroy something is not confirmed by the client's model in place of its user.
        """
        if self.asks:
            misfits = [question.reason for question in self.asked if question.is_misfit]
            if misfits:
                raise NotConfirmed(f"The client's answer is not valid. {' '.join(misfits)} Nothing was changed.")
            logger.info("Not confirmed: the client accepted a form unfilled. %s", UNATTENDED)
            raise NotConfirmed(NOT_FILLED_IN)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the argument with the answers; the consent has an argument of its own."""
        questions = {key: question for key, question in self.questions.items() if key != Confirmation.KEY}
        properties = {key: answer_schema(question) for key, question in questions.items()}
        return {"type": "object", "properties": properties, "required": list(questions)}
