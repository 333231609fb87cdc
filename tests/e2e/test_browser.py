"""Every page that people see, in a browser: narrow, wide, light, dark, from left to right and from right to left.

One browser looks at all of them: axe finds nothing, nothing scrolls sideways, and no policy forbids what a page needs.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from tests.e2e.browser import CALLBACK, obtain_token
from tests.e2e.servers import ROOT, Server, manage, run_example

# `warehouse` may see some of everything.
USERNAME = "warehouse"
LANGUAGES = ["en", "ar"]
WEB = "https://chat.assistant.co.uk/oauth/callback"
# A page with faults that must be found, so that finding none means something.
FAULTY = "data:text/html,<main><img src=data:,><p style='width:2000px;color:%23ddd'>wide and faint</p>"
FAULTY += "<p class=buttons style='display:flex;flex-direction:row-reverse'><button>A</button><button>B</button>"
FAULTY += "<p><input type=checkbox style='margin:0'><input type=checkbox style='margin:0'>"
NAMES = ["endpoint", "refused", "start", "login", "consent", "web", "unknown", "error", "document", "tokens", "remove"]
NAMES += ["access", "endpoint of a user", "before login", "unnamed"]


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_example(prepared, tmp_path_factory.mktemp("browser"), "runserver", "") as found:
        yield found


def authorization(server: Server, redirect_uri: str, scope: str, client_id: str = "") -> str:
    """The URL at which a client asks for access, registered first unless it says that it is."""
    if not client_id:
        metadata = {"client_name": "Assistant", "redirect_uris": [redirect_uri]}
        answer = httpx2.post(f"{server.origin}/oauth/register/", json=metadata).raise_for_status()
        client_id = answer.json()["client_id"]
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": scope,
        "state": "x",
    }
    asked |= {"code_challenge": "a" * 43, "code_challenge_method": "S256", "resource": server.url}
    return f"{server.origin}/oauth/authorize/?{urlencode(asked)}"


def pages(server: Server) -> list[dict[str, Any]]:
    tokens = f"{server.origin}/oauth/authorized_tokens/"
    web = authorization(server, WEB, "mcp:read")
    before = authorization(server, WEB, "mcp:read mcp:write")
    return [
        {"name": "endpoint", "url": server.url, "anonymous": True, "copies": True},
        {"name": "endpoint of a user", "url": server.url},
        {"name": "refused", "url": server.url.replace("127.0.0.1", "elsewhere.example"), "anonymous": True},
        {"name": "start", "url": f"{server.origin}/", "anonymous": True, "copies": True},
        {"name": "login", "url": f"{server.origin}/login/", "anonymous": True},
        {"name": "consent", "url": authorization(server, CALLBACK, "mcp:read mcp:write mcp:admin")},
        {"name": "web", "url": web},
        {"name": "before login", "url": before, "anonymous": True},
        {"name": "unnamed", "url": web.replace("scope=mcp%3Aread&", "")},
        {"name": "unknown", "url": authorization(server, WEB, "mcp:read", "gone")},
        {"name": "error", "url": web.replace("chat.assistant", "evil.example")},
        {"name": "document", "url": authorization(server, WEB, "mcp:read", f"https://localhost/{'client' * 30}.json")},
        {"name": "tokens", "url": tokens},
        {"name": "remove", "url": f"{tokens}1/delete/"},
        {"name": "access", "url": f"{server.origin}/oauth/access/"},
        {"name": "faulty", "url": FAULTY, "anonymous": True},
    ]


def look_at(server: Server, node: str, chromium: str, username: str, **task: Any) -> dict[tuple[str, str], Any]:
    """What a user sees of each page in each language."""
    task |= {
        "executable": chromium,
        "login": {"url": f"{server.origin}/login/?next=/", "username": username},
        "schemes": ["light", "dark"],
    }
    program = [node, str(ROOT / "tests" / "e2e" / "node" / "pages.mjs")]
    done = subprocess.run(program, input=json.dumps(task), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return {(found["name"], found["language"]): found for found in json.loads(done.stdout)}


@pytest.fixture(scope="module")
def seen(server: Server, node: str, chromium: str) -> dict[tuple[str, str], dict[str, Any]]:
    obtain_token(server.origin, USERNAME)
    manage(server, "mcp_token", USERNAME, "--name", "nightly report")
    task = {"languages": LANGUAGES, "widths": [320, 768, 1600], "pages": pages(server)}
    # Which axe leaves out by itself: what is touched is 24 px in size, or apart from the rest.
    task["also"] = ["target-size"]
    return look_at(server, node, chromium, USERNAME, **task)


@pytest.fixture(scope="module")
def administered(
    server: Server, node: str, chromium: str, seen: dict[tuple[str, str], Any]
) -> dict[tuple[str, str], dict[str, Any]]:
    """What an administrator sees, once there is access to be seen."""
    tokens = f"{server.origin}/admin/oauth2_provider/accesstoken/"
    paths = {"list": "", "of a user": "?q=warehouse", "one": "1/change/", "revoke": "revoke/"}
    listed = [{"name": name, "url": f"{tokens}{path}"} for name, path in paths.items()]
    listed.append({"name": "applications", "url": f"{server.origin}/admin/oauth2_provider/application/"})
    return look_at(server, node, chromium, "admin", languages=["en"], widths=[320, 1280], pages=listed)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_fit_for_everybody(seen: dict[tuple[str, str], dict[str, Any]], name: str, language: str) -> None:
    assert not seen[name, language]["problems"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "start"])
def test_a_page_is_in_the_language_of_the_browser(seen: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    assert (seen[name, "en"]["seen"]["lang"], seen[name, "en"]["seen"]["dir"]) == ("en", "ltr")
    assert (seen[name, "ar"]["seen"]["lang"], seen[name, "ar"]["seen"]["dir"]) == ("ar", "rtl")
    assert seen[name, "en"]["seen"]["text"] != seen[name, "ar"]["seen"]["text"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("endpoint", "Connect an application"),
        ("refused", "Host not allowed"),
        ("login", "Password"),
        ("consent", "runs on your own device"),
        ("consent", "Only these kinds of records"),
        ("web", "recognise assistant.co.uk"),
        ("unknown", "Connect the application again"),
        ("error", "We could not complete this sign-in"),
        ("document", "an address that this site does not accept"),
        ("tokens", "(this computer)"),
        ("remove", "loses access now"),
        ("access", "shop.order"),
        ("endpoint of a user", "What it would see as warehouse"),
        ("before login", "Assistant wants to connect to this site"),
        ("unnamed", "did not say what it needs"),
    ],
)
def test_the_browser_came_to_the_page_that_was_meant(
    seen: dict[tuple[str, str], dict[str, Any]], name: str, text: str
) -> None:
    assert text in seen[name, "en"]["seen"]["text"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list", "Remove all of this access (2)"),
        ("of a user", "nightly report"),
        ("one", "consent page"),
        ("revoke", "Open connections end within seconds"),
        ("applications", "127.0.0.1"),
    ],
)
def test_the_pages_of_administrators_are_fit_for_everybody(
    administered: dict[tuple[str, str], dict[str, Any]], name: str, text: str
) -> None:
    found = administered[name, "en"]
    assert text.lower() in found["seen"]["text"].lower()
    # Django's admin has no icon.
    assert not [problem for problem in found["problems"] if "404 (Not Found)" not in problem]


def test_the_address_is_copied_by_the_keyboard(seen: dict[tuple[str, str], Any], server: Server) -> None:
    for language in LANGUAGES:
        assert seen["endpoint", language]["seen"]["copied"] == server.url
        assert seen["start", language]["seen"]["copied"].startswith("claude mcp add --transport http shop ")


def test_faults_are_found(seen: dict[tuple[str, str], dict[str, Any]]) -> None:
    problems = "\n".join(seen["faulty", "en"]["problems"])
    for fault in ("image-alt", "color-contrast", "html-has-lang", "scrolls sideways: ", "buttons: ", "target-size"):
        assert fault in problems
