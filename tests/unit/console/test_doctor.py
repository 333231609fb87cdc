"""Each way in which a server can be set up badly, as a server of its own that answers so; the good way is in e2e."""

import json
import threading
import time
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mcp_django.console.doctor import Agent, Doctor, StepFailed
from tests.tls_server import Authority, serving

JSON = "application/json"


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path.partition("?")[0]))
        self.server.cookies += self.headers.get("Cookie", "")
        status, kind, body, headers = self.server.answers.get(self.path.partition("?")[0], (404, "text/html", "", {}))
        data = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_OPTIONS = answer

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + self.server.ahead)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads, made.ahead, made.asked, made.cookies = True, 0, [], ""
    made.origin = f"http://127.0.0.1:{made.server_address[1]}"
    origin, known = made.origin, "/.well-known"
    resource = json.dumps({"resource": f"{origin}/mcp", "authorization_servers": [origin]})
    places = {name: f"{origin}/oauth/{name}" for name in ("authorize", "token", "register")}
    metadata = json.dumps({"issuer": origin} | {f"{name}_endpoint": url for name, url in places.items()})
    metadata = metadata.replace("authorize_endpoint", "authorization_endpoint").replace("register_", "registration_")
    challenge = {"WWW-Authenticate": f'Bearer resource_metadata="{origin}{known}/oauth-protected-resource/mcp"'}
    made.answers = {
        "/mcp": (401, JSON, "{}", challenge),
        f"{known}/oauth-protected-resource/mcp": (200, JSON, resource, {}),
        f"{known}/oauth-protected-resource": (200, JSON, resource, {}),
        f"/mcp{known}/oauth-protected-resource": (200, JSON, resource, {}),
        f"{known}/oauth-authorization-server": (200, JSON, metadata, {}),
        f"{known}/openid-configuration": (200, JSON, metadata, {}),
        "/oauth/register": (201, JSON, '{"client_id": "c1"}', {}),
        "/oauth/authorize": (200, "text/html", '<form><input name="x"><button name="allow"></form> password', {}),
        "/oauth/token": (200, JSON, '{"access_token": "t", "scope": "mcp:read", "expires_in": 60}', {}),
    }
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def examine(server, path="/mcp"):
    """The steps that went well, and the failure that ended the way."""
    passed = []
    for title, step in Doctor(server.origin + path, sign_in=lambda: {"sessionid": "s"}).steps():
        try:
            step()
        except StepFailed as failed:
            return passed, title, f"{failed} {failed.remedy}"
        passed.append(title)
    return passed, None, ""


def test_nothing_that_listens_is_said():
    with pytest.raises(StepFailed, match="cannot be reached") as failed:
        Doctor("http://127.0.0.1:9/mcp").reach()
    assert "Start the server" in failed.value.remedy


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, "text/html", "", {}), 'path("mcp", mcp_django.site.urls)'),
        ((301, "text/html", "", {"Location": "/mcp/"}), "redirects to /mcp/"),
        ((400, "text/html", "", {}), "ALLOWED_HOSTS"),
        ((403, "text/html", "CSRF", {}), "refuses the request"),
        ((502, "text/html", "", {}), "log"),
        ((204, "text/html", "", {}), "Something else answers"),
        ((401, JSON, "{}", {"WWW-Authenticate": "Basic"}), "BearerAuthentication"),
    ],
)
def test_an_endpoint_that_is_not_there_is_said(server, answer, said):
    server.answers["/mcp"] = answer
    passed, step, text = examine(server)
    assert (passed, step) == ([], "Endpoint")
    assert said in text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "Origin not allowed"}}', "It says: Origin not allowed."),
        ('{"error": {"message": "a\\u001b[31m\\nb"}}', "It says: a\ufffd[31m\ufffdb."),
        ('{"error": "x"}', "with application/json. "),
        ("[" * 100_000, "with application/json. "),
    ],
)
def test_what_the_endpoint_says_of_a_refusal_is_repeated(server, body, said):
    server.answers["/mcp"] = (403, JSON, body, {})
    _, step, text = examine(server)
    assert step == "Endpoint"
    assert said in text


def test_an_endpoint_that_is_open_to_anyone_ends_the_way_and_is_said(server):
    server.answers["/mcp"] = (200, JSON, "{}", {})
    assert "AUTHENTICATION_CLASSES is empty" in Doctor(f"{server.origin}/mcp").reach()
    assert examine(server) == (["Endpoint", "Clock"], None, "")


@pytest.mark.parametrize(("ahead", "said"), [(0, ""), (3600, "s ahead of"), (-3600, "s behind")])
def test_a_clock_that_is_wrong_is_said(server, ahead, said):
    server.ahead = ahead
    _, step, text = examine(server)
    assert (step == "Clock") is bool(said)
    assert said in text
    assert ("NTP" in text) is bool(said)


def test_a_server_that_does_not_tell_its_time_is_let_pass():
    assert "Clock" not in dict(Doctor("http://127.0.0.1:9/mcp").public_steps())


@pytest.mark.parametrize(
    ("answer", "is_well"),
    [
        ((204, JSON, "", {"Access-Control-Allow-Origin": "https://app.example"}), True),
        ((204, JSON, "", {}), False),
        ((405, JSON, "", {"Access-Control-Allow-Origin": "https://app.example"}), False),
    ],
)
def test_an_allowed_origin_that_something_keeps_out_is_said(server, answer, is_well):
    server.answers["/mcp"] = answer
    doctor = Doctor(f"{server.origin}/mcp", origins=["https://app.example"])
    assert "Browsers" in [title for title, _ in doctor.public_steps()]
    if is_well:
        assert doctor.ask_as_browser() == "pages of https://app.example can call it"
    else:
        with pytest.raises(StepFailed, match="does not let pages of"):
            doctor.ask_as_browser()


def test_a_certificate_that_clients_do_not_trust_is_said(tmp_path):
    with serving(Authority(tmp_path).context("localhost")) as strange, pytest.raises(StepFailed) as failed:
        Doctor(f"https://localhost:{strange.port}/mcp").reach()
    assert "certificate" in str(failed.value)
    assert "fullchain" in failed.value.remedy


@pytest.mark.parametrize(
    "place",
    [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
        "/mcp/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
    ],
)
@pytest.mark.parametrize(
    "answer",
    [
        (404, "text/html", "", {}),
        (200, "text/html", "<html>", {}),
        (200, JSON, "[]", {}),
        (200, JSON, "{", {}),
        (200, JSON, "[" * 100_000, {}),
        (200, JSON, '{"resource": 1, "issuer": null}', {}),
    ],
    ids=["404", "page", "list", "half", "deep", "no text"],
)
def test_a_document_that_is_missing_anywhere_is_said(server, place, answer):
    server.answers[place] = answer
    _, step, text = examine(server)
    assert step.startswith("Metadata")
    assert server.origin + place in text
    assert "mcp_django.oauth.urls" in text


def test_another_base_url_is_said(server):
    document = json.dumps({"resource": "http://shop.example/mcp", "authorization_servers": ["http://shop.example"]})
    server.answers["/.well-known/oauth-protected-resource/mcp"] = (200, JSON, document, {})
    _, step, text = examine(server)
    assert step == "Metadata of the endpoint"
    assert f'Set MCP_DJANGO["BASE_URL"] to {server.origin}' in text


def test_a_base_url_at_which_nothing_runs_is_said_and_not_taken_for_a_server_that_was_not_started(server):
    nowhere = "http://127.0.0.1:1"
    status, kind, body, headers = server.answers["/mcp"]
    challenge = headers["WWW-Authenticate"].replace(server.origin, nowhere)
    server.answers["/mcp"] = (status, kind, body, {"WWW-Authenticate": challenge})
    document = json.dumps({"resource": f"{nowhere}/mcp", "authorization_servers": [nowhere]})
    for place in server.answers:
        if "protected-resource" in place:
            server.answers[place] = (200, JSON, document, {})
    _, step, text = examine(server)
    assert step == "Metadata of the endpoint"
    assert f"is about {nowhere}/mcp, but clients reach {server.origin}/mcp." in text
    assert f'Set MCP_DJANGO["BASE_URL"] to {server.origin}' in text


@pytest.mark.parametrize("servers", [None, [], [1], "http://127.0.0.1"])
def test_an_endpoint_that_names_no_authorization_server_is_said(server, servers):
    document = json.dumps({"resource": f"{server.origin}/mcp", "authorization_servers": servers})
    for place in server.answers:
        if "protected-resource" in place:
            server.answers[place] = (200, JSON, document, {})
    _, step, text = examine(server)
    assert step == "Metadata of the authorization server"
    assert "names no authorization_servers" in text


def test_registration_that_is_off_ends_the_way_in_order(server):
    for name in ("oauth-authorization-server", "openid-configuration"):
        status, kind, body, headers = server.answers[f"/.well-known/{name}"]
        server.answers[f"/.well-known/{name}"] = status, kind, body.replace("registration_", "other_"), headers
    passed, step, _ = examine(server)
    assert step is None
    assert passed[-1] == "Metadata of the authorization server"


@pytest.mark.parametrize("mode", ["off", "authenticated"])
def test_a_client_is_added_where_none_can_register_itself(server, mode):
    if mode == "authenticated":
        server.answers["/oauth/register"] = (401, JSON, '{"error": "invalid_token"}', {})
    else:
        for name in ("oauth-authorization-server", "openid-configuration"):
            status, kind, body, headers = server.answers[f"/.well-known/{name}"]
            server.answers[f"/.well-known/{name}"] = status, kind, body.replace("registration_", "other_"), headers
    doctor = Doctor(f"{server.origin}/mcp", add_client=lambda: "added")
    said = {title: step() for title, step in doctor.steps()}
    assert "client added was added for this" in said["Registration"]
    assert doctor.client_id == "added"
    assert said["Login page"] == f"{server.origin}/oauth/authorize"


@pytest.mark.parametrize(
    ("place", "answer", "step", "said"),
    [
        ("/oauth/register", (429, JSON, '{"error": "too many"}', {}), "Registration", "too many"),
        ("/oauth/register", (201, JSON, '{"client_id": 1}', {}), "Registration", "no client_id"),
        ("/oauth/authorize", (500, "text/html", "", {}), "Login page", "log"),
        ("/oauth/authorize", (302, "text/html", "", {"Location": "/nowhere"}), "Login page", "LOGIN_URL"),
        ("/oauth/authorize", (200, "text/html", "<form></form>", {}), "Consent page", "no button"),
        (
            "/oauth/authorize",
            (200, "text/html", '<link rel="stylesheet" href="/s.css"><button name="allow">', {}),
            "Consent page",
            "no styles",
        ),
    ],
)
def test_a_step_of_the_sign_in_that_fails_is_said(server, place, answer, step, said):
    server.answers[place] = answer
    _, found, text = examine(server)
    assert found == step
    assert said in text


@pytest.mark.parametrize(
    "answer",
    [
        (405, "text/plain", "no", {}),
        (406, JSON, '{"error": {"message": "answered with text/event-stream, which this server cannot send"}}', {}),
    ],
)
def test_a_server_that_cannot_stream_is_a_note_for_calls_work_there(server, answer):
    doctor = Doctor(f"{server.origin}/mcp", token="t")
    server.answers["/mcp"] = answer
    assert "Calls work all the same" in doctor.listen()
    assert "uvicorn or daphne" in doctor.doubt


def test_something_else_in_place_of_a_stream_is_said(server):
    doctor = Doctor(f"{server.origin}/mcp", token="t")
    for status in (406, 502):
        server.answers["/mcp"] = (status, "text/html", "no", {})
        with pytest.raises(StepFailed, match=rf"answers {status} with text/html, not a stream\."):
            doctor.listen()


@pytest.mark.parametrize(
    ("challenge", "seen", "remedy"),
    [
        (
            'Bearer resource_metadata="https://x.example/"',
            "something in front of it removes the header",
            "pass on Auth",
        ),
        (
            'Bearer resource_metadata="https://x.example/", error="invalid_token"',
            "does not accept the token",
            "database",
        ),
    ],
)
def test_a_token_that_never_arrives_is_told_from_one_that_is_refused(server, challenge, seen, remedy):
    server.answers["/mcp"] = (401, JSON, "{}", {"WWW-Authenticate": challenge})
    with pytest.raises(StepFailed, match=seen) as failed:
        Doctor(f"{server.origin}/mcp", token="t").call()
    assert remedy in failed.value.remedy


@pytest.mark.parametrize(
    ("location", "remedy"),
    [
        ("https://127.0.0.1/mcp", "as SECURE_SSL_REDIRECT does. Name the https URL."),
        ("/en/mcp", "out of i18n_patterns()"),
        ("/zh-hans/mcp", "out of i18n_patterns()"),
        ("/mcp/", "mount it without a slash"),
        ("/accounts/login/?next=/mcp", "asks for a login before"),
    ],
)
def test_each_cause_of_a_redirect_is_named(server, location, remedy):
    server.answers["/mcp"] = (302, "text/html", "", {"Location": location})
    _, step, text = examine(server)
    assert step == "Endpoint"
    assert remedy in text


def test_a_port_without_tls_is_told_from_a_certificate_that_nobody_trusts(server):
    with pytest.raises(StepFailed) as failed:
        Doctor(server.origin.replace("http:", "https:") + "/mcp").reach()
    assert "speaks http, not https" in failed.value.remedy
    assert "certificate" not in failed.value.remedy


@pytest.mark.parametrize(
    ("cookie", "seen", "remedy"),
    [("sessionid=k", "not known here", "one SECRET_KEY"), ("other=k", "without a session", "SESSION_COOKIE_PATH")],
)
def test_a_session_that_is_unknown_is_told_from_one_that_is_not_sent(server, cookie, seen, remedy):
    server.answers["/back"] = (403, "text/html", "no", {})
    agent = Agent()
    agent.keep(f"{server.origin}/", SimpleCookie(cookie))
    with pytest.raises(StepFailed, match=seen) as failed:
        agent.page(f"{server.origin}/back?mcp_signed_in=1", "The consent page")
    assert remedy in failed.value.remedy


def test_where_redirects_have_to_be_https_the_way_is_gone_with_such_a_one_and_that_is_a_note(server):
    doctor = Doctor(f"{server.origin}/mcp", callback=Doctor.callback.replace("http:", "https:"))
    doctor.server = {"registration_endpoint": f"{server.origin}/oauth/register"}
    assert doctor.register() == "client c1"
    assert "Claude Code, cannot sign in" in doctor.doubt


def test_events_that_are_held_back_are_said(server):
    server.answers["/mcp"] = (200, "text/event-stream", "\n", {})
    with pytest.raises(StepFailed) as failed:
        Doctor(f"{server.origin}/mcp", token="t").listen()
    assert "buffering" in failed.value.remedy


@pytest.mark.parametrize("body", ['{"access_token": 1}', "{}", "{"])
def test_a_token_that_is_none_is_said(server, body):
    server.answers["/oauth/token"] = (200, JSON, body, {})
    doctor = Doctor(f"{server.origin}/mcp", server={"token_endpoint": f"{server.origin}/oauth/token"})
    with pytest.raises(StepFailed, match=r"access_token|JSON object"):
        doctor.get_token()


@pytest.mark.parametrize("body", ['{"error": {"message": "no"}}', '{"result": 1}', '{"result": {"tools": null}}'])
def test_a_call_that_fails_is_said(server, body):
    server.answers["/mcp"] = (200, JSON, body, {})
    with pytest.raises(StepFailed, match="answers with an error"):
        Doctor(f"{server.origin}/mcp", token="t").call()


# The person


FORM = (
    '<form {}><input type="hidden" name="csrf" value="c"><input name="user"><input type="password" name="word"></form>'
)
ALLOW = '<form><input name="x"><button name="allow"></form>'


def with_login(server, form=None, **answers):
    """A server that sends to a login page, and from there to where it is told."""
    html = "text/html"
    server.answers["/oauth/authorize"] = (302, html, "", {"Location": "/login?next=/oauth/authorize"})
    server.answers["/login"] = (200, html, form or FORM.format(""), {})
    server.answers |= {f"/{name}": answer for name, answer in answers.items()}
    return Doctor(f"{server.origin}/mcp", person=("ada", "pw"))


def walk(doctor):
    told = {}
    for title, step in doctor.steps():
        try:
            told[title] = step()
        except StepFailed as failed:
            return told, title, f"{failed} {failed.remedy}"
    return told, None, ""


def test_a_login_page_that_leads_elsewhere_is_said(server):
    doctor = with_login(server, FORM.format('action="/enter"'), enter=(302, "text/html", "", {"Location": "/profile"}))
    told, title, text = walk(doctor)
    assert "sends no `next` along" in told["Login page"]
    assert title == "Sign-in"
    assert f"the browser is at {server.origin}/profile" in text
    assert "redirect to its parameter `next`" in text


def test_a_login_page_that_leads_back_without_the_prefix_is_said(server):
    for place in ("oauth-authorization-server", "openid-configuration"):
        status, kind, metadata, headers = server.answers[f"/.well-known/{place}"]
        below = metadata.replace("/oauth/authorize", "/sub/oauth/authorize")
        server.answers[f"/.well-known/{place}"] = status, kind, below, headers
    doctor = with_login(server)
    server.answers["/sub/oauth/authorize"] = server.answers["/oauth/authorize"]
    _, title, text = walk(doctor)
    assert title == "Login page"
    assert f"{server.origin}/login leads back to /oauth/authorize, without the prefix /sub." in text
    assert "pass on the full path, or start uvicorn with --root-path /sub." in text


@pytest.mark.parametrize(
    "form", [FORM.format(""), FORM.format('action="/x?next=/y"'), FORM.format("") + '<input name="next" value="/y">']
)
def test_a_form_that_sends_next_along_is_no_riddle(server, form):
    told, _, _ = walk(with_login(server, form))
    assert told["Login page"] == f"{server.origin}/login"


def test_a_password_that_is_not_taken_is_said(server):
    _, title, text = walk(with_login(server))
    assert title == "Sign-in"
    assert "does not accept this password of ada" in text
    assert "only staff" in text


def test_a_user_whom_the_login_page_never_lets_in_is_said(server):
    doctor = with_login(server)
    doctor.shut_out = "it is the login page of the admin, and ada is not staff."
    _, title, text = walk(doctor)
    assert title == "Login page"
    assert "ada is not staff" in text
    assert "set LOGIN_URL to a login page for all users" in text


def test_a_session_whose_cookie_does_not_reach_the_page_is_said(server):
    server.answers["/oauth/authorize"] = (403, "text/html", "", {})
    agent = Agent()
    agent.keep(f"{server.origin}/", SimpleCookie("sid=s; Path=/admin/"))
    with pytest.raises(StepFailed) as failed:
        agent.page(f"{server.origin}/oauth/authorize?mcp_signed_in=1", "The consent page")
    assert "without a session (its cookies: sid for 127.0.0.1/admin/)" in str(failed.value)
    assert "SESSION_COOKIE_PATH" in failed.value.remedy


@pytest.mark.parametrize("path", ["/admin", "/admin/", "/oauth/x"])
def test_a_session_that_no_browser_sends_to_the_consent_page_is_said(server, path):
    cookies = SimpleCookie({"sid": "s"})
    cookies["sid"]["path"] = path
    doctor = Doctor(f"{server.origin}/mcp", sign_in=lambda: cookies)
    _, title, text = walk(doctor)
    assert title == "Consent page"
    assert f"sends no session to {server.origin}/oauth/authorize." in text
    assert "SESSION_COOKIE_PATH" in text


def test_the_steps_through_pages_take_a_sign_in_and_a_client_that_is_known(server):
    doctor = Doctor(f"{server.origin}/mcp", client_id="c1")
    assert [title for title, _ in doctor.page_steps()] == []
    doctor.challenge = f"{server.origin}/.well-known/oauth-protected-resource/mcp"
    doctor.read_server()
    assert [title for title, _ in doctor.page_steps()] == ["Login page"]
    doctor.sign_in = lambda: {"sessionid": "s"}
    assert {title: step() for title, step in doctor.page_steps()}["Consent page"] == "with its styles"


def test_a_circle_is_said(server):
    server.answers["/a"] = (302, "text/html", "", {"Location": "/b"})
    server.answers["/b"] = (302, "text/html", "", {"Location": "/a"})
    with pytest.raises(StepFailed, match=r"in a loop: .*/a -> .*/b -> .*/a") as failed:
        Agent().page(f"{server.origin}/a", "The page")
    assert "SESSION_COOKIE_PATH" in failed.value.remedy


@pytest.mark.parametrize(
    ("cookie", "url", "is_sent"),
    [
        ("a=1; Path=/", "http://127.0.0.1/x", True),
        ("a=1; Path=/admin/", "http://127.0.0.1/oauth/", False),
        ("a=1; Path=/oauth", "http://127.0.0.1/oauth/x", True),
        ("a=1; Path=/oauth", "http://127.0.0.1/oauthx", False),
        ("a=1", "http://127.0.0.1/admin/login/x", True),
        ("a=1", "http://127.0.0.1/x", False),
        ("a=1; Path=/", "http://other.example/", False),
        ("a=1; Path=/; Domain=.shop.example", "http://www.shop.example/", True),
        ("a=1; Path=/; Domain=shop.example", "http://myshop.example/", False),
        ("a=1; Path=/; Secure", "http://127.0.0.1/", True),
        ("a=1; Path=/; Secure; Domain=shop.example", "http://shop.example/", False),
        ("a=1; Path=/; Secure; Domain=shop.example", "https://shop.example/", True),
        ("a=1; Path=/; Max-Age=0", "http://127.0.0.1/", False),
    ],
)
def test_a_cookie_goes_where_a_browser_sends_it(cookie, url, is_sent):
    agent = Agent()
    agent.keep("http://127.0.0.1/admin/login/", SimpleCookie(cookie))
    assert agent.sent_to(url) == ("a=1" if is_sent else "")


@pytest.mark.parametrize("place", ["/mcp", "/.well-known/oauth-authorization-server", "/oauth/register"])
def test_middleware_that_asks_for_a_login_first_is_said(server, place):
    server.answers[place] = (302, "text/html", "", {"Location": f"/login?next={place}"})
    _, _, text = examine(server)
    assert f"asks for a login before {place}" in text
    assert "Give clients that URL" not in text


def test_K198_a_redirect_leads_to_no_file(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>canary</p>")
    with pytest.raises(StepFailed, match="only http and https"):
        Agent().send("GET", page.as_uri())
