"""An OAuth client for the tests: it goes through Django's test client as a browser and an application would."""

import base64
import hashlib
import json
import secrets
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from django.contrib.auth import get_user_model
from django.test import Client

ORIGIN = "http://testserver"
RESOURCE = f"{ORIGIN}/mcp"
REDIRECT_URI = "http://127.0.0.1:51763/callback"
REGISTERED_URI = "http://127.0.0.1/callback"
STATE = "st ate/+="


class Flow:
    """One application and the browser of one user."""

    def __init__(self, *, username: str = "ada", registered: tuple[str, ...] = (REGISTERED_URI,)) -> None:
        self.user = get_user_model().objects.filter(username=username).first() or (
            get_user_model().objects.create_user(username, f"{username}@example.com", "pw")
        )
        self.browser = Client()
        self.browser.force_login(self.user)
        self.application = Client()
        # Registrations with the same metadata are one client.
        name = "Robot" if username == "ada" else f"Robot of {username}"
        answer = self.application.post(
            "/oauth/register/",
            json.dumps({"client_name": name, "redirect_uris": registered, "token_endpoint_auth_method": "none"}),
            content_type="application/json",
        )
        assert answer.status_code == 201, answer.content
        self.client_id = answer.json()["client_id"]
        self.verifier = secrets.token_urlsafe(32)

    @property
    def challenge(self) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")

    def query(self, **changes: Any) -> dict[str, Any]:
        """The parameters of the authorization request; None leaves one out."""
        params: dict[str, Any] = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT_URI,
            "scope": "mcp:read mcp:write",
            "state": STATE,
            "code_challenge": self.challenge,
            "code_challenge_method": "S256",
            "resource": RESOURCE,
        } | changes
        return {key: value for key, value in params.items() if value is not None}

    def ask(self, **changes: Any) -> Any:
        """Open the authorization page."""
        return self.browser.get("/oauth/authorize/", self.query(**changes))

    def answer(self, granted: tuple[str, ...] | None = None, *, deny: bool = False, **changes: Any) -> Any:
        """Open the page and send its form, with all scopes ticked unless told."""
        page = self.ask(**changes)
        assert page.status_code == 200, page.content
        fields = {key: value for key, value in page.context["form"].initial.items() if value}
        fields["granted"] = list(granted if granted is not None else fields["scope"].split())
        fields["deny" if deny else "allow"] = "1"
        return self.browser.post("/oauth/authorize/", fields)

    def code(self, granted: tuple[str, ...] | None = None, **changes: Any) -> str:
        return redirected(self.answer(granted, **changes))["code"]

    def token(self, **params: Any) -> Any:
        """Send to the token endpoint; None leaves a parameter out."""
        sent = {"client_id": self.client_id} | params
        return self.application.post("/oauth/token/", {key: value for key, value in sent.items() if value is not None})

    def exchange(self, code: str, **changes: Any) -> Any:
        params = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT_URI,
            "code_verifier": self.verifier,
            "resource": RESOURCE,
        }
        return self.token(**(params | changes))

    def refresh(self, refresh_token: str, **changes: Any) -> Any:
        return self.token(**({"grant_type": "refresh_token", "refresh_token": refresh_token} | changes))

    def tokens(self, **changes: Any) -> dict[str, Any]:
        """Go all the way and return the token response."""
        response = self.exchange(self.code(**changes))
        assert response.status_code == 200, response.content
        tokens: dict[str, Any] = json.loads(response.content)
        return tokens


def redirected(response: Any) -> dict[str, str]:
    """The parameters that the browser takes to the application, each of them once."""
    assert response.status_code == 302, response.content
    location = urlsplit(response["Location"])
    assert response["Location"].startswith(REDIRECT_URI), response["Location"]
    pairs = parse_qsl(location.query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)
