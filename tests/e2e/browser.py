"""A person with a browser, who signs in with Django's own form and answers the consent page as it stands."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import httpx2

# Nothing listens there: the browser looks at the redirect and goes no further, as a command-line client's page would.
CALLBACK = "http://127.0.0.1:33418/callback"
MAX_STEPS = 10


@dataclass
class Form:
    """A form of a page: what it would send, and the names of its buttons."""

    action: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    buttons: set[str] = field(default_factory=set)

    def names(self) -> set[str]:
        return {name for name, _ in self.fields}


class FormReader(HTMLParser):
    """Collects the forms of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(given.get("action", "")))
        if not self.forms or not given.get("name"):
            return
        form, kind = self.forms[-1], given.get("type", "text")
        if tag == "button" or kind == "submit":
            form.buttons.add(given["name"])
        elif tag == "input" and (kind != "checkbox" or {"checked", "required"} & {*given}):
            form.fields.append((given["name"], given.get("value", "")))


class Browser:
    """Signs in as `username`, whose password is the same unless it is set, and allows what is asked.

    `scopes` are the ones to leave ticked on the consent page; None leaves all of them. `models` are ticked there.
    """

    def __init__(self, username: str, scopes: set[str] | None = None) -> None:
        self.username = self.password = username
        self.scopes = scopes
        self.models: list[str] = []
        self.pages: list[str] = []

    def authorize(self, url: str) -> dict[str, str]:
        """Open an authorization URL; return the parameters that the client gets at its redirect URI."""
        with httpx2.Client(timeout=30) as client:
            response = client.get(url)
            for _ in range(MAX_STEPS):
                if response.is_redirect:
                    target = urljoin(str(response.url), response.headers["location"])
                    if target.startswith(CALLBACK):
                        return dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
                    response = client.get(target)
                else:
                    response = self._submit(client, response)
        raise AssertionError(f"{url} leads nowhere")

    def _submit(self, client: httpx2.Client, response: httpx2.Response) -> httpx2.Response:
        self.pages.append(response.text)
        for form in FormReader(response.text).forms:
            # Django's page, and that of allauth.
            for name in {"username", "login"} & form.names():
                return self._post(client, response, form, **{name: self.username, "password": self.password})
            if "allow" in form.buttons:
                form.fields = [pair for pair in form.fields if pair[0] != "granted" or self._grants(pair[1])]
                for model in self.models:
                    assert f'name="models" value="{model}"' in response.text
                form.fields += [("models", model) for model in self.models]
                return self._post(client, response, form, allow="1")
        if named := re.search(r"<a [^>]*rel=\"next\" href=\"([^\"]+)\">", response.text):
            return client.get(urljoin(str(response.url), unescape(named[1])))
        raise AssertionError(f"no form that a person could answer: {response.status_code} {response.text}")

    def _grants(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes

    def _post(self, client: httpx2.Client, page: httpx2.Response, form: Form, **answers: str) -> httpx2.Response:
        sent = [pair for pair in form.fields if pair[0] not in answers] + list(answers.items())
        target = urljoin(str(page.url), form.action)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Referer": str(page.url)}
        return client.post(target, content=urlencode(sent), headers=headers)


def obtain_token(origin: str, username: str, scope: str = "mcp:read mcp:write") -> str:
    """Register a client, let the user allow it, and return the access token: OAuth by hand (RFCs 7591 and 6749)."""
    with httpx2.Client(base_url=origin, timeout=30) as client:
        metadata: dict[str, Any] = client.get("/.well-known/oauth-authorization-server").raise_for_status().json()
        registered = client.post(
            metadata["registration_endpoint"], json={"client_name": "by hand", "redirect_uris": [CALLBACK]}
        ).raise_for_status()
        verifier = secrets.token_urlsafe(48)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        common = {"client_id": registered.json()["client_id"], "redirect_uri": CALLBACK, "resource": f"{origin}/mcp"}
        asked = {"response_type": "code", "scope": scope, "code_challenge": challenge, "code_challenge_method": "S256"}
        callback = Browser(username).authorize(f"{metadata['authorization_endpoint']}?{urlencode(common | asked)}")
        sent = common | {"grant_type": "authorization_code", "code": callback["code"], "code_verifier": verifier}
        return client.post(metadata["token_endpoint"], data=sent).raise_for_status().json()["access_token"]
