"""Grants for programs, without a user at a browser: the code of each is loaded with its first token."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.http import HttpRequest
from django.utils.module_loading import import_string

from ..conf import settings


@dataclass(frozen=True, slots=True)
class ProgramGrant:
    """A grant for programs: the setting that enables it, and the dotted name of the function that issues its tokens."""

    setting: str
    function: str

    @property
    def is_enabled(self) -> bool:
        """Whether the project has set up the grant."""
        return bool(getattr(settings, self.setting))

    def issue(self, request: HttpRequest) -> dict[str, Any]:
        """Issue a token for the request: return the members of the response (RFC 6749, section 5.1).

        Raises ``OAuth2Error`` if the request is refused.
        """
        function: Callable[[HttpRequest], dict[str, Any]] = import_string(self.function)
        return function(request)


# By the value of ``grant_type``: client credentials (RFC 6749, section 4.4) and identity assertions (RFC 7523).
PROGRAM_GRANTS: Final[Mapping[str, ProgramGrant]] = {
    "client_credentials": ProgramGrant("SERVICE_ACCOUNTS", "mcp_django.oauth.service_accounts.account_token"),
    "urn:ietf:params:oauth:grant-type:jwt-bearer": ProgramGrant(
        "IDENTITY_PROVIDERS", "mcp_django.oauth.identity_providers.identity_token"
    ),
}
