"""The one executor of calls that were kept until a person confirmed them.

It rebuilds the request of the caller and makes the call as if it came now: user, grant, client, switches, settings,
budgets and permissions are those of this moment, and the rows must be as they were shown.
"""

from typing import Any, Final

from asgiref.sync import async_to_sync
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.utils import timezone, translation
from django.utils.translation import gettext_noop

from ..context.person_consent import Consent
from ..context.questions import Answers
from ..context.request import Client, MCPRequest, middleware_attributes, read_scope, scope_from_wsgi
from ..differences.kept_changes import KeptChange
from ..exceptions import InsufficientScope, ToolError
from ..models import Change
from ..oauth.bearer import Token
from ..oauth.stored_tokens import still_granted
from ..orm.permission_queries import load_permissions
from ..protocol.eras import Call, classify, client_meta
from ..protocol.messages import decode, encode
from ..routing import ENDPOINTS
from ..signin import SignIn, is_current
from .kernel import Kernel, Reply
from .methods.handler_interface import Later
from .person_requests import UNKNOWN

State = Change.State
TOO_LATE: Final = "Nobody has decided in time."
UNREADABLE: Final = gettext_noop("What was asked for can no longer be read.")
NO_USER: Final = "The user who asked for it is not active."
NO_GRANT: Final = gettext_noop("The access of the application that asked for it has ended.")
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
        call = self.kept.kept
        if call is None:
            self._failed(UNREADABLE)
            return
        with translation.override(call["language"]):
            try:
                request = self._request(call)
                answer = self._answer(request, call)
            except ToolError as refused:
                self._failed(refused.message)
                return
            except InsufficientScope:
                self._failed(LOST_SCOPES)
                return
        consent: Consent = request.mcp.consent
        if not consent.is_late:
            # If it was done, this does nothing: the request waits no longer.
            self._failed(_told(answer))

    def _failed(self, reason: str) -> None:
        values = {"decided": timezone.now(), "by": self.by, "outcome": reason}
        self.kept.claim(State.WAITING, State.FAILED, **values)

    def _request(self, call: dict[str, Any]) -> MCPRequest:
        """Return a request as the caller's was; raise ``ToolError`` if the caller has no access any more."""
        user: Any = get_user_model()._default_manager.filter(pk=self.kept.change.user).first()
        facts = call["facts"]
        if user is None or not user.is_active:
            raise ToolError(NO_USER)
        scopes = frozenset(call["scopes"])
        if not (still_granted(call["checksum"], call["family"], facts, user, scopes) and is_current(user, facts)):
            raise ToolError(NO_GRANT)
        request, _ = read_scope(scope_from_wsgi(self.original), self.site)
        for name in ("HTTP_AUTHORIZATION", "HTTP_ACCEPT_LANGUAGE"):
            request.META.pop(name, None)
        if self.approver is None:
            # What middleware has found out about another person is no fact about the caller.
            request.__dict__.update(middleware_attributes(self.original))
        request.method = "POST"
        request.path_info = call["path"]
        request.path = request.META["SCRIPT_NAME"] + request.path_info
        request.META.update(REQUEST_METHOD="POST", PATH_INFO=request.path_info)
        request.resolver_match = ENDPOINTS.match(request.path_info)
        mcp = request.mcp
        mcp.resource = call["resource"]
        mcp.client_id = call["client_id"]
        mcp.facts = facts
        mcp.param_headers = None
        SignIn(request).act_as(user, scopes)
        if call["checksum"]:
            request.auth = Token(mcp.scopes, mcp.client_id, timezone.now(), call["checksum"], facts)  # type: ignore[attr-defined]
        mcp.answers = Answers(call["answers"]["given"], direct=call["answers"]["direct"], trusted=True)
        mcp.consent = Consent(call["digest"], self.kept.change.pk, self.by, approver=self.approver)
        return request

    def _answer(self, request: MCPRequest, call: dict[str, Any]) -> dict[str, Any]:
        """Make the call, and return the JSON-RPC response."""
        params = {"name": call["tool"], "arguments": call["arguments"]}
        meta = client_meta(call["client"])
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
        made = classify(encode(message), None)
        assert isinstance(made, Call)
        mcp = request.mcp
        mcp.version = made.version
        mcp.client = Client(call["client"])
        load_permissions(request.user)
        kernel = Kernel(request, made)
        outcome: Any = kernel.serve()
        if isinstance(outcome, Later):
            outcome = async_to_sync(kernel.resume_async)(outcome) if outcome.is_async else kernel.resume(outcome)
        assert isinstance(outcome, Reply)
        answer: dict[str, Any] = decode(outcome.body)
        return answer


def _told(answer: dict[str, Any]) -> str:
    """Return the text of an error."""
    if "error" in answer:
        return str(answer["error"]["message"])
    content = answer["result"].get("content", [])
    return str(content[0].get("text", "")) if content else UNKNOWN
