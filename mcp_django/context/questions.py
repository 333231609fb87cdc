"""Questions to the client's user, its model or itself, and the answers that a call is run again with.

A call that needs an answer ends with :class:`~mcp_django.exceptions.InputRequired`; the client answers, and the call
runs again from its beginning with :class:`Answers` (2026-07-28, basic/patterns/mrtr). In between, the client carries
the questions and answers of earlier rounds, the JSON of :meth:`Answers.state`, sealed so that it can neither read nor
change them.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from ..conf import settings
from ..exceptions import Declined, InputRequired, ToolError
from ..protocol.client_requests import ClientRequest
from ..protocol.errors import InvalidParams
from ..runtime.cache_and_rate_limits import required_cache
from ..schema.consent import ConsentForm
from .call_record import CallRecord

logger = logging.getLogger("mcp_django")

# Maximum bytes of the answers that one call carries from round to round.
MAX_STATE_BYTES: Final = 32 * 1024
# Maximum number of rounds of one call, so that a program that always answers wrongly is not asked without end.
MAX_ROUNDS: Final = 32
ONE_VALUE: Final = "Give one value, not a list or an object."
NOT_UNDERSTOOD: Final = "The answer was not understood. Give one value for each field."
# Number of unfilled answers after which a client counts as unable to show the form.
MAX_UNFILLED: Final = 2
# Maximum characters of the reason why a question is asked again.
MAX_REASON: Final = 1_000
# Seconds by which the clocks of workers may differ.
CLOCK_SKEW: Final = 90
UNKNOWN_NONCE: Final = (
    "The server cannot check confirmations at the moment. Nothing was changed. Repeat the call in a few seconds."
)
# For the operator's log, never for a model: it would lead the model past its user.
UNATTENDED: Final = "Clients that run without a person need a token made with mcp_token --confirm-by-token."
# One text for all causes; only the log says which it was.
STATE_ERROR: Final = (
    "Invalid params: requestState is not valid: it was used, has expired, or belongs to another call. "
    "Make the call again without requestState and inputResponses."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(ClientRequest):
    """One question to the client (elicitation, sampling, roots) that a call waits for.

    ``key`` names the answer and is unique in a call: at most 64 of the characters A-Z, a-z, 0-9, "_", "." and "-".
    ``params`` are in the form of the newest revision. With ``proof``, only an answer to exactly this question counts,
    and only once; ``about`` is part of the question without being sent. With ``is_about``, it stands for the message
    too, which may be left open until the question is asked. The other attributes do not make it a different question:
    ``reason`` says why it is asked again, ``as_text`` that the client cannot show numbers, ``by_result`` that it has
    shown no form at all, ``is_misfit`` that its last answer had values of types that no form has.
    """

    key: str
    proof: bool = False
    about: str = ""
    is_about: bool = False
    reason: str = ""
    as_text: bool = False
    by_result: bool = False
    is_misfit: bool = False

    @property
    def digest(self) -> str:
        """The digest of the question, in hexadecimal, which tells it from any other question."""
        params = {**self.params, "message": ""} if self.is_about else self.params
        told = [self.method, params, self.proof, self.about]
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def because(self, reason: str, **more: Any) -> "Question":
        """Return the same question with the reason why the question is asked again."""
        return replace(self, reason=reason, **more)

    def missing(self, content: Mapping[str, Any]) -> list[str]:
        """Return what a client's answer to this question leaves open, by the titles of what is required. An empty value
        is not an answer: a client that cannot show questions may send it without asking its user."""
        form = self.params.get("requestedSchema") or {}
        fields: Mapping[str, Any] = form.get("properties", {})

        def is_open(name: str) -> bool:
            value = content.get(name)
            field = fields[name]
            is_text = field.get("type") == "string" and not field.keys() & {"enum", "oneOf", "format"}
            return value is None or (value == "" and (self.proof or not is_text))

        names = (name for name in form.get("required", ()) if name in fields and is_open(name))
        return [str(fields[name].get("title") or name) for name in names]

    def misfit(self, content: Mapping[str, Any]) -> str:
        """Return what is wrong with an answer that has values of types that no form has, in words for the user."""
        form = self.params.get("requestedSchema") or {}
        fields: Mapping[str, Any] = form.get("properties", {})
        wrong = [name for name, value in content.items() if name in fields and isinstance(value, (list, Mapping))]
        titles = [str(fields[name].get("title") or name) for name in wrong]
        return " ".join(f"{title}: {ONE_VALUE}" for title in titles) or NOT_UNDERSTOOD

    def to_wire(self, version: str) -> dict[str, Any]:
        """Return the question as it is put to a client of this revision: ``method`` and ``params``."""
        params = self.shape(version, as_text=self.as_text)
        if self.reason and "message" in params:
            params["message"] = f"{self.reason[:MAX_REASON]}\n\n{params['message']}"
        return {"method": self.method, "params": params}


def _given_content(answer: Any) -> Mapping[str, Any]:
    """Return the content of an answer to a form as it came, {} without one."""
    content = answer.get("content") if isinstance(answer, Mapping) else None
    return content if isinstance(content, Mapping) else {}


def declined(action: str) -> Declined:
    """Return the exception for a question that the client's user declined ("decline") or dismissed ("cancel").

    The log says how a client without a user goes on.
    """
    logger.info("A question was answered with %s. %s", action, UNATTENDED)
    return Declined(action)


def use_up(purpose: str, nonce: str, max_age: float) -> bool:
    """Use up the nonce of answers to questions, so that they count once; return False if it was used. This holds
    across workers if they share Django's default cache, and within each worker otherwise."""
    key = f"mcp_django:{purpose}:{nonce}"
    try:
        is_good = bool(required_cache.add(key, True, max_age + CLOCK_SKEW))
    except Exception as error:
        logger.warning("Nothing can be confirmed: the cache does not answer (%s)", type(error).__name__)
        raise ToolError(UNKNOWN_NONCE) from None
    if is_good and (record := CallRecord.current.get()) is not None:
        record.spent.append(key)
    return is_good


class Answers:
    """The client's answers to a call's questions: those of this round, ``given``, and those of the rounds before.

    ``given`` has the client's results by key. ``state`` is what :meth:`state` returned in the previous round; nothing
    else proves what was asked. ``direct`` answers came as arguments of a tool, from a client that cannot be asked: they
    are values, not results, and the code that read them has already used up the state. ``trusted`` answers came with a
    proof of their own; ``proven`` ones count only for the very questions that they answer, and their state has not left
    the server. ``progress`` is how far the previous run had come.
    """

    __slots__ = (
        *("_asked", "_direct", "_given", "_kept", "_nonce", "_proven", "_round", "_seen", "_trusted", "_unfilled"),
        "progress",
    )

    def __init__(
        self,
        given: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        *,
        direct: bool = False,
        trusted: bool = False,
        proven: bool = False,
    ) -> None:
        state = state or {}
        self._given = given or {}
        self._asked: Mapping[str, str] = state.get("asked") or {}
        self._kept: Mapping[str, Any] = state.get("kept") or {}
        self._nonce: str | None = state.get("nonce")
        self._round: int = state.get("round", 0)
        self._unfilled: dict[str, int] = dict(state.get("unfilled") or {})
        self._direct = direct
        self._trusted = trusted
        self._proven = direct or proven
        self.progress: float | None = state.get("progress")
        self._seen: dict[str, Question] = {}

    @staticmethod
    def give_back() -> None:
        """Give back the nonces of answers that the call of this thread has used up, because nothing was done."""
        record = CallRecord.current.get()
        while record is not None and record.spent:
            with suppress(Exception):
                required_cache.delete(record.spent.pop())

    @property
    def seen(self) -> tuple[Question, ...]:
        """The questions of this run, in the order in which they were first asked."""
        return tuple(self._seen.values())

    def taken(self) -> dict[str, Any]:
        """Return the answers so far as JSON, ``given`` by key and whether they are ``direct``, to make the call with
        them later."""
        kept = {key: answer for key, (_digest, answer) in self._kept.items()}
        return {"given": {**kept, **self._given}, "direct": self._direct}

    def unused_key(self, digest: str) -> str:
        """Return a key for a question that has none; each run that asks the same questions gets the same key."""
        number = 1 + sum(key.startswith(digest[:12]) for key in self._seen)
        return digest[:12] if number == 1 else f"{digest[:12]}.{number}"

    def get(self, question: Question) -> Any:
        """Return the client's answer to a question as it came; None without a valid one."""
        known = self._seen.setdefault(question.key, question)
        if known is not question and known.digest != question.digest:
            raise ValueError(f"two questions of one call have the key {question.key!r}")
        if question.key in self._given:
            digest = self._asked.get(question.key)
            answer = self._given[question.key]
        else:
            digest, answer = self._kept.get(question.key, (None, None))
        if answer is None or not question.proof or self._trusted:
            return answer
        if digest != question.digest:
            return None
        if not self._proven and not use_up("answered", self._nonce or "", settings.QUESTION_TIMEOUT):
            raise InvalidParams(STATE_ERROR)
        self._proven = True
        return answer

    def settle(self, question: Question, version: str, read: Callable[[dict[str, Any]], Any]) -> Any:
        """Return the answer to a question as ``read`` converts it, or raise ``InputRequired`` to ask the question.

        ``version`` is the revision in which the client answered. ``read`` raises ``ValueError`` for an invalid answer.
        """
        answer = self.get(question)
        if answer is None:
            changed = question.proof and self._asked.get(question.key, question.digest) != question.digest
            reason = "What you were asked about has changed." if changed else question.reason
            raise InputRequired([question.because(reason, by_result=self._direct)])
        missing: list[str] = []
        content: dict[str, Any] = {}
        try:
            content = self._content(question, answer, version)
            missing = question.missing(content)
            found = read(content)
        except ValueError as error:
            reason = str(error)
        else:
            if not missing:
                return found
            reason = " ".join(f"{title}: This field is required." for title in missing)
        unfilled = self._unfilled[question.key] = self._unfilled.get(question.key, 0) + bool(missing or not content)
        by_result = self._direct or unfilled >= MAX_UNFILLED
        is_misfit = not missing and not content and bool(_given_content(answer))
        raise InputRequired([question.because(reason, by_result=by_result, is_misfit=is_misfit)])

    def _content(self, question: Question, answer: Any, version: str) -> dict[str, Any]:
        if self._direct:
            properties: Mapping[str, Any] = question.params["requestedSchema"]["properties"]
            if ConsentForm(question.params["requestedSchema"]).is_only_consent:
                said = answer.lower() if isinstance(answer, str) else answer
                if said is False or said in ("false", "no"):
                    raise declined("decline")
                if said is not True and said not in ("true", ConsentForm.YES):
                    raise ValueError("expected true or false")
                return {ConsentForm.FIELD: ConsentForm.YES}
            if isinstance(answer, Mapping):
                return dict(answer)
            if len(properties) > 1:
                raise ValueError(f"expected an object with {', '.join(properties)}")
            return dict.fromkeys(properties, answer)
        if isinstance(answer, Mapping) and "error" in answer and "action" not in answer:
            # In the older era a question is a request to the client, which can answer with an error.
            raise ToolError("The client returned an error to our question. Nothing was changed.")
        try:
            result = question.read_result(version, answer)
        except ValueError as error:
            if question.method != question.ELICITATION:
                raise
            logger.info("An answer is not valid: %s", error)
            raise ValueError(question.misfit(_given_content(answer))) from None
        if question.method != question.ELICITATION:
            return result
        if result["action"] != "accept":
            raise declined(result["action"])
        content: dict[str, Any] = result["content"]
        return content

    def state(self, asked: Iterable[Question]) -> dict[str, Any]:
        """Return the state, as JSON, that must come back with the answers to these questions."""
        if self._round >= MAX_ROUNDS:
            raise ToolError(f"Gave up after {MAX_ROUNDS} invalid answers. Nothing was changed.")
        digests = {question.key: question.digest for question in asked}
        fresh = {}
        for key, answer in ({} if self._direct else self._given).items():
            digest = self._seen[key].digest if key in self._seen else self._asked.get(key)
            if digest is not None:
                fresh[key] = [digest, answer]
        kept = {key: value for key, value in {**self._kept, **fresh}.items() if key not in digests}
        if kept and len(json.dumps(kept)) > MAX_STATE_BYTES:
            raise ToolError("The answers are too long. Nothing was changed. Answer in fewer words.")
        state: dict[str, Any] = {"nonce": secrets.token_urlsafe(16), "round": self._round + 1, "asked": digests}
        unfilled = {key: times for key, times in self._unfilled.items() if times and key in digests}
        more = {"kept": kept or None, "unfilled": unfilled or None, "progress": self.progress}
        return {**state, **{name: value for name, value in more.items() if value is not None}}


# Answers without elicitation


def answer_schema(question: Question) -> dict[str, Any]:
    """Return the JSON Schema of the argument that answers a call's question; for one field, its value alone."""
    form = question.params["requestedSchema"]
    properties: Mapping[str, Any] = form["properties"]
    message = " ".join(filter(None, [question.reason[:MAX_REASON], question.params["message"]]))
    if ConsentForm(form).is_only_consent:
        return {"type": "boolean", "description": f"{message} (true to confirm)"}
    if len(properties) > 1:
        return {**form, "description": message}
    [only] = properties.values()
    own = only.get("description", "")
    return {**only, "description": f"{message} {own}" if own else message}
