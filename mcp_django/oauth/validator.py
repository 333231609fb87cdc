"""The rules of the authorization server, on top of django-oauth-toolkit's."""

import hashlib
import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model
from oauth2_provider.oauth2_validators import OAuth2Validator
from oauth2_provider.settings import oauth2_settings
from oauthlib.common import Request as OAuthRequest
from oauthlib.oauth2.rfc6749 import errors

from . import resource
from .scopes import expand

__all__ = ["MCPValidator", "check_challenge", "check_resources"]

GRANT_TYPES: Final = frozenset({"authorization_code", "refresh_token"})
# A SHA-256 in base64url, and what it may have been made of (RFC 7636, sections 4.1 and 4.2).
S256_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")


def check_challenge(challenge: str | None, method: str | None, state: str | None = None) -> None:
    """Require a proper PKCE challenge by S256 (OAuth 2.1, section 7.5.2).

    Raises:
        OAuth2Error: ``invalid_request``.
    """
    if method != "S256" or S256_CHALLENGE.fullmatch(challenge or "") is None:
        raise errors.InvalidRequestError(description="PKCE with code_challenge_method=S256 is required.", state=state)


def check_resources(asked: Iterable[str], request: HttpRequest | None, state: str | None = None) -> list[str]:
    """Return the endpoints that were asked for, in their own spelling; the only one there is, when none was.

    Raises:
        OAuth2Error: ``invalid_target`` for what is no endpoint of this server (RFC 8707, section 2).
    """
    named = list(asked)
    found = [resource.canonical(request, item) for item in named] or [resource.default_resource(request)]
    known = [url for url in found if url is not None]
    if len(known) < len(found):
        text = "The resource is not an MCP endpoint of this server." if named else "The resource parameter is required."
        raise errors.CustomOAuth2Error(error="invalid_target", description=text, state=state)
    return list(dict.fromkeys(known))


class MCPValidator(OAuth2Validator):
    """Codes with S256 for known endpoints, refresh tokens that rotate, and nothing else."""

    # Within it a spent refresh token still works: parallel processes of one client and lost responses do no harm.
    refresh_grace = timedelta(seconds=30)

    # Authorization codes

    def validate_response_type(self, client_id: str, response_type: str, *args: Any, **kwargs: Any) -> bool:
        """Accept ``code`` only."""
        return response_type == "code" and super().validate_response_type(client_id, response_type, *args, **kwargs)

    def validate_grant_type(self, client_id: str, grant_type: str, *args: Any, **kwargs: Any) -> bool:
        """Accept codes and refresh tokens only."""
        return grant_type in GRANT_TYPES and super().validate_grant_type(client_id, grant_type, *args, **kwargs)

    def is_pkce_required(self, client_id: str, request: OAuthRequest) -> bool:
        """Require it of every client."""
        return True

    def _create_authorization_code(self, request: OAuthRequest, code: dict[str, str], expires: Any = None) -> Any:
        # The view has checked both; the consent form could have been changed since.
        check_challenge(request.code_challenge, request.code_challenge_method, request.state)
        asked = getattr(request, "resource", None) or []
        asked = [asked] if isinstance(asked, str) else asked
        request.resource = check_resources(asked, _HeadersOnly(request.headers), request.state)
        return super()._create_authorization_code(request, code, expires)

    def validate_code(self, client_id: str, code: str, client: Any, request: OAuthRequest, *args: Any) -> bool:
        """Accept a live code of an active user; a code used before takes the tokens made from it with it."""
        if not super().validate_code(client_id, code, client, request, *args):
            _revoke_tokens_of(code)
            return False
        verifier = request.code_verifier
        return bool(request.user.is_active and (verifier is None or VERIFIER.fullmatch(verifier)))

    def invalidate_authorization_code(self, client_id: str, code: str, request: OAuthRequest, *args: Any) -> None:
        """Use the code up.

        Raises:
            InvalidGrantError: another request used it meanwhile; the tokens of both are revoked.
        """
        try:
            super().invalidate_authorization_code(client_id, code, request, *args)
        except errors.InvalidGrantError:
            _revoke_tokens_of(code)
            raise

    # Refresh tokens

    def validate_refresh_token(self, refresh_token: str, client: Any, request: OAuthRequest, *args: Any) -> bool:
        """Accept a live token of an active user, or one spent a moment ago; any other spent one revokes its family."""
        spent = self._just_spent(refresh_token)
        if spent is None:
            valid = super().validate_refresh_token(refresh_token, client, request, *args)
            return bool(valid and request.user.is_active)
        request.user = spent.user
        request.refresh_token = refresh_token
        request.refresh_token_instance = spent
        return bool(spent.application == client and spent.user.is_active)

    def is_within_original_scope(self, request_scopes: list[str], refresh_token: str, request: OAuthRequest) -> bool:
        """Accept scopes that the granted ones imply."""
        original = self.get_original_scopes(refresh_token, request)
        return expand(original.split() if isinstance(original, str) else original).issuperset(request_scopes)

    def _just_spent(self, refresh_token: str) -> Any:
        """Return the row of a token that was rotated within the grace and whose successor lives, or None."""
        return (
            get_refresh_token_model()
            .objects.select_related("user", "application")
            .filter(
                token_checksum=hashlib.sha256(refresh_token.encode()).hexdigest(),
                revoked__gt=timezone.now() - self.refresh_grace,
                refreshed_access_token__isnull=False,
            )
            .order_by("-revoked")
            .first()
        )

    def _save_bearer_token(self, token: dict[str, Any], request: OAuthRequest, *args: Any, **kwargs: Any) -> None:
        """Store the pair; beside a pair that the same refresh token already gave, store a sibling in its family.

        The toolkit would hand out the earlier pair again, which nobody knows once tokens are hashed.
        """
        spent = getattr(request, "refresh_token_instance", None)
        if spent is not None:
            # A concurrent request with the same token waits here, and then finds it spent.
            spent = get_refresh_token_model().objects.select_for_update().get(pk=spent.pk)
        if spent is None or spent.revoked is None:
            super()._save_bearer_token(token, request, *args, **kwargs)
            return
        if not get_access_token_model().objects.filter(source_refresh_token=spent).exists():
            raise errors.InvalidGrantError(request=request)
        self._check_and_set_request_resource(request)
        seconds = token.get("expires_in", oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS)
        access_token = self._create_access_token(timezone.now() + timedelta(seconds=seconds), request, token)
        self._create_refresh_token(request, token["refresh_token"], access_token, spent)

    def _create_refresh_token(self, request: OAuthRequest, code: str, access_token: Any, previous: Any) -> Any:
        row = super()._create_refresh_token(request, code, access_token, previous)
        if previous is None and request.code:
            row.token_family = _family_of(request.code)
            row.save(update_fields=["token_family"])
        return row

    # Resources

    def _check_and_set_request_resource(self, request: OAuthRequest) -> None:
        """Bind the token to endpoints in their own spelling, so that a slash or a port is no other resource."""
        asked = [value for key, value in request.decoded_body or [] if key == "resource"]
        request.resource = check_resources(asked, _HeadersOnly(request.headers)) if asked else []
        super()._check_and_set_request_resource(request)
        request.resource = request.resource or check_resources([], _HeadersOnly(request.headers))

    # ID tokens are no access tokens, and there are none.

    def validate_id_token(self, token: str, scopes: list[str], request: OAuthRequest) -> bool:
        """Accept none."""
        return False

    def validate_jwt_bearer_token(self, token: str, scopes: list[str], request: OAuthRequest) -> bool:
        """Accept none."""
        return False


def _family_of(code: str) -> UUID:
    """Return the family of the tokens made from a code: computed, so that a code once used needs no record."""
    return UUID(bytes=hashlib.sha256(b"mcp_django.oauth code " + code.encode()).digest()[:16])


def _revoke_tokens_of(code: str) -> None:
    """Revoke what was made from a code that came twice (OAuth 2.1, section 4.1.3)."""
    get_refresh_token_model().revoke_family(_family_of(code))


class _HeadersOnly(HttpRequest):
    """A Django request with the headers of oauthlib's, for the origin where it is not set."""

    def __init__(self, headers: dict[str, Any]) -> None:
        super().__init__()
        self.META = headers

    def _get_scheme(self) -> str:
        # The toolkit notes here what Django's own request said of TLS.
        return "https" if self.META.get("X_DJANGO_OAUTH_TOOLKIT_SECURE") else "http"
