"""A local client: calls a site in this process, without HTTP or tokens; used by ``manage.py`` commands."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser

from ..context.request import Client, MCPRequest, local_request
from ..exceptions import AuthenticationFailed, InsufficientScope
from ..protocol.eras import Call, Rejected, classify, client_meta
from ..protocol.messages import decode, encode
from ..scopes import expand
from ..server.kernel import Reply
from ..server.methods.handler_interface import Later
from ..signin import SignIn
from ..sites import MCPSite
from .call_execution import CallExecution

# The client name that management commands use.
NAME: Final = "manage.py"


class LocalUser:
    """The user who calls ``site`` with ``scopes``. Each call reads account and permissions again."""

    def __init__(self, site: MCPSite, user: AbstractBaseUser, scopes: Iterable[str]) -> None:
        self.site = site
        self.user_pk = user.pk
        self.scopes = expand(scopes)

    def new_request(self) -> MCPRequest:
        return local_request(self.site)

    def authorize(self, request: MCPRequest) -> None:
        """Give the request its user, with current permissions. Call it in a worker thread."""
        user = get_user_model()._default_manager.filter(pk=self.user_pk).first()
        if user is None or not user.is_active:
            raise AuthenticationFailed(invalid=True)
        SignIn(request).act_as(user, self.scopes)


class LocalClient:
    """A client in this process that calls ``site`` as ``user`` with ``scopes``, without a transport.

    ``facts`` are those that :meth:`~mcp_django.signin.SignIn.facts` returned. ``name`` is the client's name,
    ``capabilities`` what the server can ask it: without any, the server returns a confirmation token instead of asking.
    ``is_signed_in`` says that a person signed in on a page makes the call, not a command on this machine.
    """

    class CallFailed(Exception):
        """Raised when a call fails. The text says why; ``data`` is that of the server's JSON-RPC error."""

        def __init__(self, message: str, data: Any = None) -> None:
            super().__init__(message)
            self.data = data

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
        self._user = LocalUser(site, user, scopes)
        self._facts = facts or {}
        self._kind = "person" if is_signed_in else ""
        self._name = name
        self._meta = client_meta(name, capabilities=capabilities)

    def new_request(self) -> MCPRequest:
        """Return a request of the user, like those that hooks receive."""
        request = self._user.new_request()
        request.mcp.facts = self._facts
        request.mcp.client = Client(self._name)
        request.mcp.record.kind = self._kind
        try:
            self._user.authorize(request)
        except AuthenticationFailed:
            raise self.CallFailed("The user is not active.") from None
        return request

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of 2026-07-28 and return its result. Raises :class:`LocalClient.CallFailed` if it fails."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": self._meta}}
        try:
            call = classify(encode(message), None, session=None)
            assert isinstance(call, Call)
            execution = CallExecution(self.new_request(), call)
            outcome = execution.begin()
            if not isinstance(outcome, Reply | Later):
                raise self.CallFailed(f"{method} continues after its answer, which is not possible here.")
            answer = decode(execution.conclude(outcome).body)
        except Rejected as rejected:
            raise self.CallFailed(rejected.error.message, rejected.error.data) from None
        except InsufficientScope as error:
            raise self.CallFailed(str(error)) from None
        if "error" in answer:
            raise self.CallFailed(answer["error"]["message"], answer["error"].get("data"))
        result: dict[str, Any] = answer["result"]
        return result
