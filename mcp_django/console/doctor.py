"""The doctor: tries an endpoint over HTTP as a client does, from discovery to a stream, and says what to fix.

The order is that of the specification (2026-07-28, basic/authorization). The endpoint's refusal names its metadata, and
that names the authorization server. The server's metadata names the endpoints at which a client registers, asks for
consent and gets its token.
"""

import base64
import hashlib
import json
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from http.client import HTTPException, HTTPMessage
from http.cookies import Morsel, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

from django.conf import settings as django_settings

from ..context.untrusted_text import plain
from ..oauth.resource_urls import LOOPBACK, same_resource
from ..problems import LoginReturn
from ..protocol.eras import client_meta
from ..protocol.headers import MediaType
from ..protocol.versions import Revisions
from .check_results import CheckResult

TIMEOUT: Final = 15
MOST_BYTES: Final = 2 * 1024 * 1024
MOST_REDIRECTS: Final = 10
REDIRECTS: Final = (301, 302, 303, 307, 308)
# Seconds by which two clocks may differ: signed assertions are valid for about a minute.
MOST_APART: Final = 30
SEE_LOG: Final = "Look at the server's log."
NO_METADATA: Final = 'Add path("", include("mcp_django.oauth.urls")) to urls.py; a proxy has to pass /.well-known/ on.'
BUSY: Final = "A server with one worker of one thread cannot call itself: run manage.py mcp_doctor beside it."
NO_HTTP: Final = (
    'OAUTH2_PROVIDER["ALLOWED_REDIRECT_URI_SCHEMES"] has no "http": programs on the user\'s own machine, such as '
    "Claude Code, cannot sign in."
)
LOGIN_FOR_ALL: Final = "The admin's login page admits only staff: set LOGIN_URL to a login page for all users."
LEADS_BACK: Final = "The login page has to redirect to its parameter `next`, as Django's LoginView does."
META: Final = client_meta("mcp_doctor")
# OpenSSL's reasons for an answer that is not TLS.
NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"})
# The start of a path that i18n_patterns() prefixes, such as /en or /zh-hans.
LANGUAGE: Final = re.compile(r"/[a-z]{2,3}(-[a-z0-9]{2,8})*\Z", re.IGNORECASE)


class StepFailed(Exception):
    """Raised when a step fails: the text says what was seen, ``remedy`` how to fix it."""

    def __init__(self, seen: str, remedy: str) -> None:
        super().__init__(seen)
        self.remedy = remedy


@dataclass(frozen=True)
class Answer:
    """An HTTP response, with the cookies that its request sent."""

    url: str
    status: int
    headers: HTTPMessage
    body: bytes
    cookies: str = ""

    @property
    def kind(self) -> str:
        """The media type."""
        if "Content-Type" in self.headers:
            return self.headers.get_content_type()
        return "nothing"

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    @property
    def message(self) -> str:
        """Return the message of the endpoint's refusal, after a space; "" if something else answers."""
        try:
            said = plain(json.loads(self.body)["error"]["message"], 300)
        except (ValueError, LookupError, TypeError, RecursionError):
            return ""
        return f" It says: {said}." if said else ""

    def document(self, what: str, remedy: str, *members: str) -> dict[str, Any]:
        """Return the body as a JSON object with these members, all text; raise :class:`StepFailed` if it is not."""
        if self.status not in (200, 201) or self.kind != MediaType.JSON:
            raise StepFailed(f"{self.url} answers {self.status} with {self.kind}, not {what}.", remedy)
        value = None
        with suppress(ValueError, RecursionError):
            value = json.loads(self.body)
        if not isinstance(value, dict):
            raise StepFailed(f"{self.url} is not a JSON object.", remedy)
        if missing := [name for name in members if not isinstance(value.get(name), str)]:
            raise StepFailed(f"{self.url} has no {' and no '.join(missing)}.", remedy)
        return value


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Do not follow redirects: the caller does."""


class Agent:
    """An HTTP client that keeps cookies like a browser, and leaves redirects to the caller."""

    def __init__(self) -> None:
        # Cookies by their domain, path and name.
        self.cookies: dict[tuple[str, str, str], Morsel[str]] = {}
        # Deadline of all requests on the monotonic clock, for a page that waits for the doctor.
        self.ends = float("inf")
        # Connect to the server directly, whatever proxy the environment names.
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))

    def keep(self, url: str, cookies: Mapping[str, Any]) -> None:
        """Keep the cookies that a response from this URL sets (RFC 6265, section 5.3)."""
        parts = urlsplit(url)
        for name, cookie in SimpleCookie(cookies).items():
            path = cookie["path"] if cookie["path"].startswith("/") else parts.path.rpartition("/")[0] or "/"
            key = cookie["domain"] or parts.hostname or "", path, name
            if cookie["max-age"] in ("0", 0):
                self.cookies.pop(key, None)
            else:
                self.cookies[key] = cookie

    def sent_to(self, url: str) -> str:
        """Return the value of the ``Cookie`` header for a request to this URL (RFC 6265, section 5.4)."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        at = parts.path or "/"
        is_safe = parts.scheme == "https" or host in LOOPBACK
        pairs = []
        for (domain, path, name), cookie in self.cookies.items():
            within = f".{host}".endswith("." + domain.lstrip("."))
            if host != domain and not (cookie["domain"] and within):
                continue
            folder = path if path.endswith("/") else f"{path}/"
            if at != path and not at.startswith(folder):
                continue
            if is_safe or not cookie["secure"]:
                pairs.append(f"{name}={cookie.value}")
        return "; ".join(pairs)

    def send(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Answer:
        """Send a request and return the answer, of a stream with its first event only."""
        sent = dict(headers or {})
        if "Authorization" not in sent and (cookies := self.sent_to(url)):
            sent["Cookie"] = cookies
        try:
            if urlsplit(url).scheme not in ("http", "https"):
                raise ValueError("only http and https are followed")
            request = urllib.request.Request(url, body, sent, method=method)
            patience = min(TIMEOUT, max(0.1, self.ends - time.monotonic()))
            try:
                response = self._opener.open(request, timeout=patience)
            except urllib.error.HTTPError as error:
                response = error
            with response:
                for line in response.headers.get_all("Set-Cookie", ()):
                    self.keep(url, SimpleCookie(line))
                is_stream = more.get("event") and response.status == 200
                if is_stream:
                    data = (line.removeprefix(b"data:").strip() for line in response if line.startswith(b"data:"))
                    content = next(filter(None, data), b"")
                else:
                    content = response.read(MOST_BYTES)
                return Answer(url, response.status, response.headers, content, sent.get("Cookie", ""))
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise StepFailed(f"{url} does not answer within {patience:.1f} s.", BUSY) from None
            remedy = "Start the server, or name the URL at which it runs: manage.py mcp_doctor URL."
            if isinstance(reason, ssl.SSLError) and reason.reason in NOT_TLS:
                remedy = "This port speaks http, not https: name the proxy's port, or write http://."
            elif isinstance(reason, ssl.SSLError):
                remedy = "Install a certificate for this host that clients trust, with its intermediates (fullchain)."
            raise StepFailed(f"{url} cannot be reached: {reason}.", remedy) from None

    def follow(self, url: str) -> Answer:
        """Open a page as a browser, redirects included."""
        visited: list[str] = []
        while url not in visited and len(visited) < MOST_REDIRECTS:
            answer = self.send("GET", url, headers={"Accept": "text/html"})
            if answer.status not in REDIRECTS:
                return answer
            visited.append(url)
            url = urljoin(url, answer.headers["Location"])
        raise StepFailed(
            f"The browser is sent in a loop: {' -> '.join([*visited[-2:], url])}.", LoginReturn.NO_SESSION.remedy
        )

    def page(self, url: str, what: str) -> Answer:
        """Open a page as a browser, redirects included, and require HTML with status 200."""
        answer = self.follow(url)
        if answer.status == 403 and LoginReturn.PARAMETER in parse_qs(urlsplit(answer.url).query):
            if f"{django_settings.SESSION_COOKIE_NAME}=" in answer.cookies:
                raise StepFailed(f"{what}: {LoginReturn.LOST_SESSION.what}.", LoginReturn.LOST_SESSION.remedy)
            cookies = ", ".join(f"{name} for {host}{path}" for host, path, name in self.cookies)
            suffix = f" (its cookies: {cookies})" if cookies else ""
            raise StepFailed(f"{what}: {LoginReturn.NO_SESSION.what}{suffix}.", LoginReturn.NO_SESSION.remedy)
        if answer.status != 200 or answer.kind != "text/html":
            remedy = SEE_LOG if answer.status >= 500 else "Check LOGIN_URL, and open it in a browser."
            raise StepFailed(f"{what}: {answer.url} answers {answer.status} with {answer.kind}.", remedy)
        return answer


@dataclass
class _Form:
    """An HTML form: its hidden fields, and the names of its fields for user and password."""

    action: str = ""
    fields: list[tuple[str, str]] = field(default_factory=list)
    user: str = ""
    password: str = ""
    allows: bool = False


class _Page(HTMLParser):
    """The links and forms of an HTML page; one form may have the button "allow"."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: dict[str, list[str]] = {"stylesheet": [], "next": []}
        self.forms: list[_Form] = []
        self.feed(text)

    @property
    def consent(self) -> _Form | None:
        """The form that has the button "allow"."""
        return next((form for form in self.forms if form.allows), None)

    @property
    def login(self) -> _Form | None:
        """The form that asks for a password."""
        return next((form for form in self.forms if form.password and form.user), None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links, forms and their fields."""
        attributes = {name: value or "" for name, value in attrs}
        name = attributes.get("name", "")
        kind = attributes.get("type", "text").lower()
        if tag in ("a", "link") and attributes.get("rel") in self.links:
            self.links[attributes["rel"]].append(attributes.get("href", ""))
        if tag == "form" or (name and not self.forms):
            self.forms.append(_Form(attributes.get("action", "")))
        if tag == "button" and name == "allow":
            self.forms[-1].allows = True
        if tag != "input" or not name:
            return
        form = self.forms[-1]
        if kind == "password":
            form.password = form.password or name
        elif kind in ("text", "email") and not form.user:
            form.user = name
        elif (kind != "checkbox" or "checked" in attributes) and not form.allows:
            form.fields.append((name, attributes.get("value", "")))


@dataclass
class Doctor:
    """A trial of the endpoint at ``url``, step by step, up to the first failure.

    ``person`` is the name and password of a user, to sign in through the form of the login page. Otherwise ``sign_in``
    returns the cookies of a browser in which a user is signed in; without either, the steps end at the login page.
    ``shut_out`` says why the user cannot sign in there, "" if no reason is known.
    If clients cannot register themselves, ``add_client`` adds one for ``callback`` and returns its id; without it, the
    steps end there. Pages of ``origins`` may call the endpoint from a browser. ``doubt`` says what may be wrong
    although a step succeeded, "" for nothing.
    """

    url: str
    sign_in: Callable[[], Mapping[str, Any]] | None = None
    person: tuple[str, str] | None = None
    shut_out: str = ""
    add_client: Callable[[], str] | None = None
    origins: Sequence[str] = ()
    agent: Agent = field(default_factory=Agent)
    challenge: str = ""
    date: str = ""
    server: dict[str, Any] = field(default_factory=dict)
    client_id: str = ""
    # Nothing listens at this URL: the doctor reads the code from the redirect itself.
    callback: str = "http://127.0.0.1:33419/callback"
    doubt: str = ""
    login: Answer | None = None
    no_tools: str = "This user has no permission to view anything."
    asked: tuple[Answer, _Form] = field(init=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    code: str = ""
    token: str = ""

    def use_session(self, key: str) -> None:
        """Act in the session with this key."""
        self.sign_in = lambda: _session_cookies(key)

    def results(self, steps: Iterable[tuple[str, Callable[[], str]]]) -> Iterator[CheckResult]:
        """Take these steps: yield the result of each, up to the first failure."""
        for title, step in steps:
            self.doubt = ""
            try:
                text = step()
            except StepFailed as failed:
                yield CheckResult(title, "error", str(failed), failed.remedy)
                return
            yield CheckResult(title, "warning" if self.doubt else "ok", text, self.doubt)

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield each step: its title, and a function that returns what was seen or raises :class:`StepFailed`."""
        yield from self.public_steps()
        if not self.challenge:
            return
        if "registration_endpoint" not in self.server and self.add_client is None:
            return
        yield "Registration", self.register
        yield "Login page", self.open_login
        if self.person is not None:
            yield "Sign-in", self.give_password
        elif self.sign_in is None:
            return
        yield "Consent page", self.consent
        yield "Token", self.get_token
        yield "Call", self.call
        yield "Stream", self.listen

    def public_steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the steps that need no sign-in and leave nothing behind."""
        yield "Endpoint", self.reach
        if self.date:
            yield "Clock", self.compare_clocks
        if self.origins:
            yield "Browsers", self.ask_as_browser
        if self.challenge:
            yield "Metadata of the endpoint", self.read_resource
            yield "Metadata of the authorization server", self.read_server

    def page_steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the steps through the pages of the sign-in that leave nothing behind."""
        if "authorization_endpoint" in self.server:
            yield "Login page", self.open_login
            if self.sign_in is not None and self.client_id:
                yield "Consent page", self.open_consent

    # The endpoint

    def reach(self) -> str:
        """Call the endpoint without a token, as every client does first."""
        answer = self._post(
            {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"Accept": f"{MediaType.JSON}, {MediaType.EVENTS}"}
        )
        self.date = answer.headers.get("Date", "")
        if answer.status == 200:
            return "anyone can call it: AUTHENTICATION_CLASSES is empty"
        if answer.status != 401:
            raise StepFailed(f"It answers {answer.status} with {answer.kind}.{answer.message}", self._remedy(answer))
        match = re.search(r'resource_metadata="([^"]+)"', answer.headers.get("WWW-Authenticate", ""))
        if match is None:
            raise StepFailed(
                "It answers 401, but does not say where its metadata is (WWW-Authenticate).",
                "Something in front of it answers, or AUTHENTICATION_CLASSES lacks BearerAuthentication.",
            )
        self.challenge = match[1]
        return "it asks for a token, as it should"

    def compare_clocks(self) -> str:
        """Compare the server's clock, by the endpoint's ``Date`` header, with this machine's."""
        try:
            apart = parsedate_to_datetime(self.date).timestamp() - time.time()
        except ValueError:
            return f"not compared: the server sends {self.date!r} as its Date"
        if abs(apart) > MOST_APART:
            raise StepFailed(
                f"The server's clock is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} this machine's.",
                "Set both by NTP: codes, tokens and signed assertions are good for a limited time.",
            )
        return "the server's and this machine's agree"

    def ask_as_browser(self) -> str:
        """Send a CORS preflight to the endpoint for each allowed origin, as a browser does."""
        for origin in self.origins:
            headers = {
                "Origin": origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
            }
            answer = self.agent.send("OPTIONS", self.url, headers=headers)
            if answer.status >= 300 or answer.headers.get("Access-Control-Allow-Origin") != origin:
                raise StepFailed(
                    f"OPTIONS answers {answer.status} and does not let pages of {origin} call it.",
                    "Something in front of the endpoint answers OPTIONS, or drops its Access-Control headers.",
                )
        return f"pages of {', '.join(self.origins)} can call it"

    def _remedy(self, answer: Answer) -> str:
        path = urlsplit(self.url).path.lstrip("/").rstrip("/")
        if answer.status == 404:
            return (
                f'Mount it in urls.py: path("{path}", mcp_django.site.urls), or name its URL: manage.py mcp_doctor URL.'
            )
        if answer.status in REDIRECTS:
            return _remedy_of_redirect(answer)
        if answer.status == 400:
            return f"Add {urlsplit(self.url).hostname!r} to ALLOWED_HOSTS; the server's log says more."
        if answer.status == 403:
            return "Something in front of it refuses the request: middleware, or a proxy."
        if answer.status >= 500:
            return SEE_LOG
        return "Something else answers at this URL."

    # Discovery

    def read_resource(self) -> str:
        """Read the endpoint's metadata, in the end where the challenge, and so BASE_URL, leads."""
        path = urlsplit(self.url).path.removesuffix("/")
        prefix = "/.well-known/oauth-protected-resource"
        urls = [*(urljoin(self.url, place) for place in (f"{prefix}{path}", prefix, f"{path}{prefix}")), self.challenge]
        for url in dict.fromkeys(urls):
            resource = self._document(url, "resource")["resource"]
            if not same_resource(resource, self.url):
                raise StepFailed(
                    f"{url} is about {resource}, but clients reach {self.url}.",
                    f'Set MCP_DJANGO["BASE_URL"] to {_origin(self.url)}, or give clients {resource}.',
                )
        return f"{len(set(urls))} places"

    def read_server(self) -> str:
        """Read the authorization server's metadata at every place clients look."""
        servers = self._document(self.challenge).get("authorization_servers")
        if not isinstance(servers, list) or not servers or not isinstance(servers[0], str):
            raise StepFailed(f"{self.challenge} names no authorization_servers.", NO_METADATA)
        issuer = servers[0].removesuffix("/")
        base = f"{_origin(issuer)}/.well-known"
        prefix = urlsplit(issuer).path
        urls = [f"{base}/{name}{prefix}" for name in ("oauth-authorization-server", "openid-configuration")]
        for url in urls:
            self.server = self._document(url, "issuer", "authorization_endpoint", "token_endpoint")
            if self.server["issuer"].removesuffix("/") != issuer:
                raise StepFailed(
                    f"{url} is about {self.server['issuer']}, not {issuer}.",
                    'Set MCP_DJANGO["BASE_URL"] and OIDC_ISS_ENDPOINT to the same origin: provider_settings() does.',
                )
        ends = "registration_endpoint" not in self.server and self.add_client is None
        return f"{len(urls)} places" + ("; REGISTRATION is off, so this ends here" if ends else "")

    def _document(self, url: str, *members: str) -> dict[str, Any]:
        answer = self.agent.send("GET", url, headers={"Accept": MediaType.JSON})
        remedy = _remedy_of_redirect(answer) if answer.status in REDIRECTS else NO_METADATA
        return answer.document("a metadata document", remedy, *members)

    def register(self) -> str:
        """Register a client, or have one added as an administrator would."""
        if not self.callback.startswith("http:"):
            self.doubt = NO_HTTP
        if "registration_endpoint" not in self.server:
            assert self.add_client is not None
            self.client_id = self.add_client()
            return f"it is off; client {self.client_id} was added for this"
        body = {
            "client_name": "mcp_doctor",
            "redirect_uris": [self.callback],
            "grant_types": ["authorization_code"],
            "token_endpoint_auth_method": "none",
        }
        sent = json.dumps(body).encode()
        answer = self.agent.send("POST", self.server["registration_endpoint"], sent, {"Content-Type": MediaType.JSON})
        if answer.status == 401 and self.add_client is not None:
            self.client_id = self.add_client()
            return f"it takes a token; client {self.client_id} was added for this"
        remedy = _remedy_of_redirect(answer) if answer.status in REDIRECTS else f"It says: {answer.text[:300]}"
        self.client_id = answer.document("a registered client", remedy, "client_id")["client_id"]
        return f"client {self.client_id}"

    # Sign-in

    @property
    def _question(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": self.client_id or "mcp_doctor",
            "redirect_uri": self.callback,
            "scope": "mcp:read",
            "state": "doctor",
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": self.url,
        }
        return f"{self.server['authorization_endpoint']}?{urlencode(parameters)}"

    def open_login(self) -> str:
        """Open the authorization page without a session, and arrive at the login page."""
        answer = self.agent.page(self._question, "The login page")
        # Our page, which names the application, comes before the project's login page.
        for ahead in _Page(answer.text).links["next"] if answer.url == self._question else ():
            answer = self.agent.page(urljoin(answer.url, ahead), "The login page")
        self.login = answer
        page = answer.url.partition("?")[0]
        form = _Page(answer.text).login
        back = urlsplit(parse_qs(urlsplit(answer.url).query).get("next", [""])[0]).path
        prefix = (path := urlsplit(self._question).path).removesuffix(back)
        if prefix not in ("", path):
            remedy = f"Let the proxy pass on the full path, or start uvicorn with --root-path {prefix}."
            raise StepFailed(f"{page} leads back to {back}, without the prefix {prefix}.", remedy)
        if self.shut_out:
            raise StepFailed(f"{page}: {self.shut_out}", LOGIN_FOR_ALL)
        if form is None:
            if "password" in answer.text:
                return page
            return f"{page} (it asks for no password itself)"
        parameters = parse_qs(urlsplit(urljoin(answer.url, form.action)).query)
        is_lost = "next=" in answer.url and "next" not in {*parameters, *(name for name, value in form.fields if value)}
        self.doubt = LEADS_BACK if is_lost else ""
        return page + ("; its form sends no `next` along: does it lead back? --password tries it" if is_lost else "")

    def give_password(self) -> str:
        """Sign in by the login page's form, and return to the consent page."""
        assert self.login is not None
        assert self.person is not None
        (name, password) = self.person
        form = _Page(self.login.text).login
        page = self.login.url.partition("?")[0]
        if form is None:
            raise StepFailed(f"{page} has no form with a password.", "Leave out --password: a session is made then.")
        fields = urlencode([*form.fields, (form.user, name), (form.password, password)]).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Referer": self.login.url}
        sent = self.agent.send("POST", urljoin(self.login.url, form.action), fields, headers)
        if sent.status not in REDIRECTS:
            text = f"{page} does not accept this password of {name}: it answers {sent.status}."
            raise StepFailed(text, f"Is the password right? {LOGIN_FOR_ALL}")
        answer = self.agent.follow(urljoin(sent.url, sent.headers["Location"]))
        if urlsplit(answer.url).path != urlsplit(self.server["authorization_endpoint"]).path:
            text = f"After the sign-in the browser is at {answer.url}, not back at the consent page."
            raise StepFailed(text, LEADS_BACK)
        return "by its form, which leads back"

    def open_consent(self) -> str:
        """Open the consent page as a signed-in user, and check its stylesheets."""
        if self.sign_in is not None and self.person is None:
            url = self._question
            cookies = self.sign_in()
            self.agent.keep(url, cookies)
            if not any(f"{name}=" in self.agent.sent_to(url) for name in cookies):
                raise StepFailed(
                    f"A browser sends no session to {url.partition('?')[0]}.", LoginReturn.NO_SESSION.remedy
                )
        answer = self.agent.page(self._question, "The consent page")
        page = _Page(answer.text)
        if page.consent is None:
            remedy = "The user's session is not accepted there. Open the page in a browser."
            raise StepFailed(f"{answer.url} has no button to allow access.", remedy)
        for href in page.links["stylesheet"]:
            style = self.agent.send("GET", urljoin(answer.url, href))
            if style.status != 200 or style.kind != "text/css":
                raise StepFailed(
                    f"The page has no styles: {style.url} answers {style.status} with {style.kind}.",
                    "Serve STATIC_ROOT after collectstatic, by a web server or WhiteNoise.",
                )
        self.asked = answer, page.consent
        return "with its styles"

    def consent(self) -> str:
        """Open the consent page as a signed-in user, and allow access."""
        self.open_consent()
        answer, asked = self.asked
        form = urlencode([*asked.fields, ("allow", "1")]).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Referer": answer.url}
        sent = self.agent.send("POST", answer.url.partition("?")[0], form, headers)
        parameters = parse_qs(urlsplit(sent.headers.get("Location", "")).query)
        if "code" not in parameters:
            text = f"Allowing it answers {sent.status} and no code: {parameters.get('error', sent.kind)}."
            raise StepFailed(text, "See the log.")
        self.code = parameters["code"][0]
        return "with its styles, and it gives a code"

    # The client

    def get_token(self) -> str:
        """Exchange the code for a token."""
        form = {
            "grant_type": "authorization_code",
            "code": self.code,
            "client_id": self.client_id,
            "redirect_uri": self.callback,
            "code_verifier": self.verifier,
            "resource": self.url,
        }
        answer = self.agent.send("POST", self.server["token_endpoint"], urlencode(form).encode())
        token = answer.document("a token", f"It says: {answer.text[:300]}", "access_token")
        self.token = token["access_token"]
        return f"for {token.get('scope', '')}, {token.get('expires_in')} s"

    def call(self) -> str:
        """List the tools."""
        answer = self._ask("tools/list", {})
        if answer.status == 401:
            raise _refused_token(answer)
        remedy = SEE_LOG if answer.status >= 500 else f"It says: {answer.text[:300]}"
        message = answer.document("a result", remedy)
        tools = message["result"].get("tools") if isinstance(message.get("result"), dict) else None
        if not isinstance(tools, list):
            raise StepFailed(f"It answers with an error: {message.get('error')}.", remedy)
        if not tools:
            self.doubt = self.no_tools
            return "0 tools."
        return f"{len(tools)} tools"

    def listen(self) -> str:
        """Open an event stream at the endpoint and wait for the first event."""
        answer = self._ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, event=True)
        # Under WSGI, the endpoint says that it cannot send a stream. Other servers may not take the request at all.
        if answer.status == 405 or (answer.status == 406 and "this server cannot send" in answer.message):
            self.doubt = "WSGI servers, such as runserver, cannot stream: serve the project with uvicorn or daphne."
            return f"it answers {answer.status}, not a stream. Calls work all the same."
        if answer.status != 200 or answer.kind != MediaType.EVENTS:
            text = f"It answers {answer.status} with {answer.kind}, not a stream.{answer.message}"
            raise StepFailed(text, "Something in front of the endpoint answers in its place, or see the server's log.")
        if b"acknowledged" not in answer.body:
            text = "The stream ends, or is held back, before its first event."
            raise StepFailed(text, "Turn buffering off in the proxy.")
        return "its first event came at once"

    def _ask(self, method: str, params: Mapping[str, Any], **more: Any) -> Answer:
        headers = {
            "Accept": f"{MediaType.JSON}, {MediaType.EVENTS}",
            "Authorization": f"Bearer {self.token}",
            "MCP-Protocol-Version": Revisions.LATEST,
            "Mcp-Method": method,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        return self._post(message, headers, **more)

    def _post(self, message: Mapping[str, Any], headers: Mapping[str, str], **more: Any) -> Answer:
        sent = json.dumps(message).encode()
        return self.agent.send("POST", self.url, sent, {"Content-Type": MediaType.JSON, **headers}, **more)


def _session_cookies(key: str) -> SimpleCookie:
    """Return the session cookie, with the path and domain to which a browser would send it."""
    name = django_settings.SESSION_COOKIE_NAME
    cookies = SimpleCookie({name: key})
    cookies[name]["path"] = django_settings.SESSION_COOKIE_PATH
    cookies[name]["domain"] = django_settings.SESSION_COOKIE_DOMAIN or ""
    cookies[name]["secure"] = django_settings.SESSION_COOKIE_SECURE
    return cookies


def _refused_token(answer: Answer) -> StepFailed:
    """Return the failure of a call that is refused although it sends a token that was just issued.

    The challenge has an error code only if the endpoint saw a token (RFC 6750, section 3.1).
    """
    if "error=" in answer.headers.get("WWW-Authenticate", ""):
        text = f"The endpoint does not accept the token that was just issued.{answer.message}"
        return StepFailed(text, "Do all workers use one database? The server's log says why it is refused.")
    return StepFailed(
        "The endpoint asks for a token although the request has one: something in front of it removes the header.",
        "Have the proxy pass on Authorization (Apache with mod_wsgi: WSGIPassAuthorization On).",
    )


def _remedy_of_redirect(answer: Answer) -> str:
    """Return the remedy for an endpoint that redirects client programs."""
    target = answer.headers.get("Location", "")
    own = urlsplit(answer.url).path
    came = urlsplit(answer.url)
    leads = urlsplit(urljoin(answer.url, target))
    if (came.scheme, leads.scheme) == ("http", "https") and leads.path.rstrip("/") == own.rstrip("/"):
        text = f"It redirects http to https ({target}), as SECURE_SSL_REDIRECT does."
        return f"{text} Name the https URL. Behind a proxy that has the certificate, set SECURE_PROXY_SSL_HEADER."
    if own != "/" and leads.path.rstrip("/").endswith(own.rstrip("/")):
        prefix = leads.path.rstrip("/").removesuffix(own.rstrip("/"))
        if LANGUAGE.fullmatch(prefix):
            return f"It redirects to {target}: take it, /.well-known/ and /oauth/ out of i18n_patterns() in urls.py."
    if leads.path.rstrip("/") == own.rstrip("/"):
        return f"It redirects to {target}. Give clients that URL, or mount it without a slash."
    text = f"It redirects to {target.partition('?')[0]}: middleware of the project, or a proxy, asks for a login before"
    return f"{text} {own}. Have it leave out this path, /.well-known/ and /oauth/: tokens are asked for there."


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
