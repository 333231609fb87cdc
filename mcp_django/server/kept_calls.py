"""The one executor of calls that were kept until a person confirmed them.

It makes the call as if it came now, and the rows must be as they were shown.
"""

from typing import Any, Final

from django.http import HttpRequest
from django.utils import timezone, translation
from django.utils.translation import gettext_noop

from ..context.person_consent import Consent
from ..context.questions import Answers
from ..context.request import middleware_attributes, scope_from_wsgi
from ..differences.kept_changes import KeptChange
from ..exceptions import InsufficientScope, ToolError
from ..models import Change
from ..protocol.messages import decode
from .kernel import Kernel, Reply
from .person_requests import UNKNOWN
from .stored_calls import StoredCall

State = Change.State
TOO_LATE: Final = "Nobody has decided in time."
UNREADABLE: Final = gettext_noop("What was asked for can no longer be read.")
LOST_SCOPES: Final = gettext_noop("The application that asked for it may no longer do this.")


class KeptCallExecutor:
    """Makes a kept call, once.

    ``original`` is Django's request of the person who confirmed it, ``by`` their name, and ``approver`` their account
    if the call is not their own. ``site`` is the ``MCPSite`` at which the call was made.
    """

    def __init__(self, kept: KeptChange, site: Any, original: HttpRequest, by: str, approver: Any = None) -> None:
        self.kept = kept
        self.site = site
        self.original = original
        self.by = by
        self.approver = approver

    def run(self) -> None:
        """Make the call. Its request then is done, or has failed and says why; a call that somebody else has decided
        meanwhile is left alone."""
        change = self.kept.change
        if change.expires is not None and change.expires <= timezone.now():
            self.kept.claim(State.WAITING, State.EXPIRED, outcome=TOO_LATE)
            return
        data = self.kept.kept
        if data is None:
            self._failed(UNREADABLE)
            return
        consent = Consent(data["digest"], change.pk, self.by, approver=self.approver)
        with translation.override(data["language"]):
            try:
                answer = self._answer(StoredCall(data), consent)
            except ToolError as refused:
                self._failed(refused.message)
                return
            except InsufficientScope:
                self._failed(LOST_SCOPES)
                return
        if not consent.is_late:
            # If it was done, this does nothing: the request waits no longer.
            self._failed(_told(answer))

    def _failed(self, reason: str) -> None:
        values = {"decided": timezone.now(), "by": self.by, "outcome": reason}
        self.kept.claim(State.WAITING, State.FAILED, **values)

    def _answer(self, call: StoredCall, consent: Consent) -> dict[str, Any]:
        """Make the call, and return the JSON-RPC response; raise ``ToolError`` if the caller has no access any more."""
        user = call.user(self.kept.change.user)
        # What middleware has found out about another person is no fact about the caller.
        attributes = middleware_attributes(self.original) if self.approver is None else None
        request = call.request(scope_from_wsgi(self.original), self.site, user, attributes)
        answers = call.data["answers"]
        request.mcp.answers = Answers(answers["given"], direct=answers["direct"], trusted=True)
        request.mcp.consent = consent
        reply = Kernel.make(request, call)
        assert isinstance(reply, Reply)
        answer: dict[str, Any] = decode(reply.body)
        return answer


def _told(answer: dict[str, Any]) -> str:
    """Return the text of an error."""
    if "error" in answer:
        return str(answer["error"]["message"])
    content = answer["result"].get("content", [])
    return str(content[0].get("text", "")) if content else UNKNOWN
