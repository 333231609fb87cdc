"""Calls within this process, as one user: what ``manage.py`` commands ask of a site, by the way of every other call."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser

from ..context.request import MCPRequest
from ..exceptions import AuthenticationFailed, InsufficientScope
from ..protocol.eras import Call
from ..protocol.inbound import Rejected, classify
from ..protocol.messages import decode, encode
from ..protocol.modern import client_meta
from ..server.dispatch import Reply
from ..server.methods.base import Later
from ..sites import MCPSite
from .http.dispatch import begin, conclude
from .stdio.server import StdioServer

# What commands call themselves.
NAME: Final = "manage.py"


class Refused(Exception):
    """The call has no result. The text says why; ``data`` is what else the server says of it."""

    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.data = data


class LocalClient:
    """A client of ``site`` that acts as ``user`` with ``scopes``, in the calling thread, without HTTP and tokens.

    ``facts`` is what a sign-in left, as :func:`~mcp_django.signin.keep` gives it. ``name`` is what the client calls
    itself, ``capabilities`` what it can be asked: without any, what would ask gives a confirmation token instead.
    ``is_signed_in`` says that the user is in front of a page, and not whoever calls from this machine.
    """

    def __init__(
        self,
        site: MCPSite,
        user: AbstractBaseUser,
        scopes: Iterable[str],
        facts: Mapping[str, Any] | None = None,
        *,
        name: str = NAME,
        capabilities: Mapping[str, Any] | None = None,
        is_signed_in: bool = False,
    ) -> None:
        self._server = StdioServer(site, user, scopes, (-1, -1))
        self._facts = facts or {}
        self._kind = "person" if is_signed_in else ""
        self._meta = client_meta(name, capabilities=capabilities)

    def new_request(self) -> MCPRequest:
        """Return a request of the user, as hooks get it.

        Raises:
            Refused: the user is not active any more.
        """
        request = self._server.new_request()
        request.mcp.facts, request.mcp.record.kind = self._facts, self._kind
        try:
            self._server.authorize(request)
        except AuthenticationFailed:
            raise Refused("The user is not active.") from None
        return request

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of 2026-07-28 and return its result.

        Raises:
            Refused: the server answers with an error.
        """
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": self._meta}}
        try:
            call = classify(encode(message), None, session=None)
            assert isinstance(call, Call)
            answer = decode(self._answer(call).body)
        except Rejected as rejected:
            raise Refused(rejected.error.message, rejected.error.data) from None
        except InsufficientScope as error:
            raise Refused(str(error)) from None
        if "error" in answer:
            raise Refused(answer["error"]["message"], answer["error"].get("data"))
        result: dict[str, Any] = answer["result"]
        return result

    def _answer(self, call: Call) -> Reply:
        request = self.new_request()
        outcome = begin(request, call)
        reply = conclude(request, call, outcome) if isinstance(outcome, Later) else outcome
        if not isinstance(reply, Reply):
            raise Refused(f"{call.method} goes on after its answer, which is not possible here.")
        return reply
