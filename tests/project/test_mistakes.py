"""The mistakes that people make when they set the app up, each made in a small project, and what they are told.

No mistake may end in silence, and none in a traceback whose last line does not say what to do.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import get_access_token_model

from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.one_django

FORGE = Path(__file__).parents[1] / "mistakes_project" / "forge.py"
SETTINGS, URLS, MCP, ADMIN = "settings.py", "urls.py", "shop/mcp.py", "shop/admin.py"
MOUNT = 'path("mcp", mcp_django.site.urls)'
OAUTH = 'path("", include("mcp_django.oauth.urls"))'
CONFIGURED = 'MCP_DJANGO = {"BASE_URL": BASE_URL}'
PAGE = 'path("<path:rest>", lambda request: None)'


@dataclass(frozen=True)
class Mistake:
    """``edits`` are (file, what stands there, what is written instead); ``told`` is found in what is printed."""

    name: str
    told: str
    edits: list[tuple[str, str, str]] = field(default_factory=list)
    command: tuple[str, ...] = ("check",)
    # Whether the project has to be imported anew.
    fresh: bool = False


def said(name: str, told: str, file: str, old: str, new: str, **options: Any) -> Mistake:
    return Mistake(name, told, [(file, old, new)], **options)


def setting(name: str, told: str, text: str, **options: Any) -> Mistake:
    return said(name, told, SETTINGS, "", f"\n{text}\n", **options)


def without(app: str) -> tuple[str, str, str]:
    return SETTINGS, f'    "{app}",\n', ""


MISTAKES = [
    # Apps
    Mistake(
        "mcp_django is not installed",
        r'^django.*ImproperlyConfigured: The MCP endpoint needs "mcp_django" in INSTALLED_APPS\.$',
        [without("mcp_django")],
        fresh=True,
    ),
    Mistake(
        "the toolkit is not installed",
        r'^django.*ImproperlyConfigured: The MCP endpoint needs "oauth2_provider" in INSTALLED_APPS\.$',
        [without("oauth2_provider")],
        fresh=True,
    ),
    Mistake(
        "the OAuth URLs alone, without the app",
        r'^django.*ImproperlyConfigured: mcp_django.oauth.urls needs "mcp_django" in INSTALLED_APPS\.$',
        [without("mcp_django"), (URLS, f"    {MOUNT},\n", "")],
        fresh=True,
    ),
    Mistake(
        "a project without the admin, whose exposures work all the same",
        r"^System check identified no issues",
        [
            without("django.contrib.admin"),
            (SETTINGS, '"admin:login"', '"https://login.example/"'),
            (URLS, '    path("admin/", admin.site.urls),\n', ""),
            (ADMIN, "admin.site.register(Order)", ""),
        ],
        fresh=True,
    ),
    Mistake(
        "the database is not migrated",
        r"^CommandError: The database says: no such table: auth_user\. .* run manage\.py migrate\.$",
        command=("mcp_token", "admin"),
    ),
    # URLs
    said(
        "include() around the endpoint, which works",
        r"no issues",
        URLS,
        MOUNT,
        'path("mcp", include(mcp_django.site.urls))',
    ),
    said(
        "the site without its urls",
        r"I045.*\n.*HINT: Add path\(\"mcp\", mcp_django\.site\.urls\)",
        URLS,
        "mcp_django.site.urls",
        "mcp_django.site",
    ),
    said(
        "a slash at the end of the path", r"W004.*\n.*HINT: Write path\(\"mcp\", site\.urls\)", URLS, '"mcp"', '"mcp/"'
    ),
    said("no endpoint in the URLconf", r"I045.*\n.*HINT: Add path", URLS, f"    {MOUNT},\n", ""),
    said(
        "another pattern takes the endpoint's path",
        r"E009.*'/mcp' is never reached: '<path:rest>'",
        URLS,
        MOUNT,
        f"{PAGE}, {MOUNT}",
    ),
    said("the OAuth URLs are missing", r"W140.*\n.*HINT: Add path\(\"\", include", URLS, f"    {OAUTH},\n", ""),
    said(
        "the OAuth URLs are not at the root",
        r"W140.*not at the root",
        URLS,
        'path("", include',
        'path("auth/", include',
    ),
    said(
        "the toolkit's URLs in their place", r"W140(.*\n)*.*W142", URLS, "mcp_django.oauth.urls", "oauth2_provider.urls"
    ),
    said(
        "a page for every path before the OAuth URLs",
        r"W140.*\n.*before any pattern that takes every path",
        URLS,
        OAUTH,
        f"{PAGE}, {OAUTH}",
    ),
    # Addresses and sign-in
    setting(
        "no BASE_URL in production", r"E101.*\n.*HINT: Set MCP_DJANGO\[\"BASE_URL\"\]", "DEBUG = False\nMCP_DJANGO = {}"
    ),
    setting(
        "a path in BASE_URL",
        r"102\) BASE_URL 'http://127.0.0.1:8000/mcp' is not just scheme, host and port",
        'MCP_DJANGO = {"BASE_URL": BASE_URL + "/mcp"}',
    ),
    setting(
        "http in production", r"W103.*is not https", 'DEBUG = False\nMCP_DJANGO = {"BASE_URL": "http://shop.example"}'
    ),
    setting(
        "a host that Django does not answer",
        r"W127.*'shop\.example', is not in ALLOWED_HOSTS.*\n.*HINT: Add 'shop\.example'",
        'MCP_DJANGO = {"BASE_URL": "https://shop.example"}\nDEBUG = False\nALLOWED_HOSTS = ["127.0.0.1"]',
    ),
    setting(
        "https behind a proxy that is not trusted",
        r"W128.*SECURE_PROXY_SSL_HEADER",
        'MCP_DJANGO = {"BASE_URL": "https://shop.example"}\nDEBUG = False\nALLOWED_HOSTS = ["shop.example"]',
    ),
    setting(
        "another issuer than BASE_URL",
        r"W107.*'http://localhost:8000' is not BASE_URL",
        'OAUTH2_PROVIDER = provider_settings(base_url="http://localhost:8000")',
    ),
    setting(
        "a login page that is not there", r"W141.*'/accounts/login/' leads nowhere", 'LOGIN_URL = "/accounts/login/"'
    ),
    setting("a login page for staff alone", r"I135.*Only staff can sign in", "", command=("check", "--deploy")),
    # Settings
    setting("no settings of the toolkit", r"W129.*\n.*HINT: Set OAUTH2_PROVIDER", "del OAUTH2_PROVIDER"),
    setting("an unsafe setting of the toolkit", r"W116.*PKCE_REQUIRED", 'OAUTH2_PROVIDER["PKCE_REQUIRED"] = False'),
    setting(
        "a setting misspelt", r"E001.*'READONLY'.*\n.*HINT: Did you mean 'READ_ONLY'\?", 'MCP_DJANGO["READONLY"] = True'
    ),
    setting(
        "a setting of the wrong type",
        r"E008.*READ_ONLY is 'no'.*\n.*Did you mean False\?",
        'MCP_DJANGO["READ_ONLY"] = "no"',
    ),
    setting(
        "a class that is not there",
        r"E008.*BearerAuth.*cannot be imported",
        'MCP_DJANGO["AUTHENTICATION_CLASSES"] = ["mcp_django.oauth.bearer.BearerAuth"]',
    ),
    setting("a cache that workers do not share", r"W133.*\n.*HINT: Configure a shared cache", "DEBUG = False"),
    setting("news that workers do not share", r"W016.*\n.*HINT: Set CHANNEL_LAYERS", "", command=("check", "--deploy")),
    # mcp.py
    Mistake(
        "mcp.py misspelt",
        r"W032.*mpc\.py is not imported.*\n.*HINT: Rename",
        [("shop/mpc.py", "", "import mcp_django")],
    ),
    said(
        "an import that fails",
        r'File ".*shop/mcp\.py", line 3(.*\n)*ModuleNotFoundError: No module named \'shop\.model\'$',
        MCP,
        "from .models",
        "from .model",
    ),
    Mistake(
        "nothing is exposed",
        r"W031.*exposes nothing.*\n.*HINT: Register something in the mcp\.py of an installed app",
        [
            (SETTINGS, CONFIGURED, 'MCP_DJANGO = {"BASE_URL": BASE_URL, "AUTO_REGISTER": False}'),
            (MCP, "@mcp.register(Order)\n", ""),
            (MCP, '@mcp.tool(read_only=True, permissions=["shop.view_order"])\n', ""),
        ],
    ),
    Mistake(
        "nothing of the project is in the admin, which has Django's own models",
        r"W031.*exposes nothing.*\n.*HINT: Register something in the mcp\.py of an installed app",
        [
            (ADMIN, "admin.site.register(Order)", ""),
            (MCP, "@mcp.register(Order)\n", ""),
            (MCP, '@mcp.tool(read_only=True, permissions=["shop.view_order"])\n', ""),
        ],
        fresh=True,
    ),
    said("no fields", r"W011.*shows only its primary key", MCP, '    fields = ["number", "status"]\n', ""),
    said(
        '"__all__" misspelt', r"E023.*fields is '__al__', which is not a list", MCP, '["number", "status"]', '"__al__"'
    ),
    said(
        "a field that the model does not have",
        r"E010.*fields refers to 'state'.*\n.*Did you mean 'status'",
        MCP,
        '"number", "status"]',
        '"number", "state"]',
    ),
    said(
        "a filter on what the model does not have",
        r"E010.*filter_fields refers to 'state'.*\n.*Did you mean 'status'",
        MCP,
        '{"status":',
        '{"state":',
    ),
    said(
        "a lookup that does not exist",
        r"E010.*the lookup 'equals'.*\n.*It takes exact, in",
        MCP,
        '"exact", "in"',
        '"equals"',
    ),
    said(
        "a search in what the model does not have",
        r"E010.*search_fields refers to 'nubmer'.*\n.*Did you mean 'number'",
        MCP,
        'search_fields = ["number"]',
        'search_fields = ["nubmer"]',
    ),
    said(
        "an option misspelt",
        r"W024.*serach_fields.*\n.*Did you mean 'search_fields'",
        MCP,
        "search_fields",
        "serach_fields",
    ),
    said(
        "a model as the serializer",
        r"E023.*serializer_class is <class 'shop\.models\.Order'>.*\n.*HINT: Write a subclass of rest_framework",
        MCP,
        "search_fields",
        "serializer_class = Order\n    search_fields",
    ),
    said(
        "a hook without the request",
        r"E037.*OrderExposure\.get_queryset.*\n.*HINT: Write def get_queryset\(self, request\)",
        MCP,
        "    search_fields",
        "    def get_queryset(self):\n        return Order.objects.all()\n\n    search_fields",
    ),
    said(
        "an action without the request",
        r"E037.*OrderExposure\.mark_shipped.*\n.*HINT: Write def mark_shipped\(self, request, queryset\)",
        MCP,
        "self, request, queryset",
        "self, queryset",
    ),
    said(
        "an action's argument without a type hint",
        r"E036.*OrderExposure\.mark_shipped: carrier needs a type annotation",
        MCP,
        "request, queryset",
        "request, queryset, carrier",
    ),
    said(
        "an action misspelt",
        r"E014.*'mark_shiped'.*\n.*Did you mean 'mark_shipped'",
        MCP,
        '["mark_shipped"]',
        '["mark_shiped"]',
    ),
    said(
        "an action that is not listed",
        r"I028.*mark_shipped.*nobody can run it",
        MCP,
        '    actions = ["mark_shipped"]\n',
        "",
    ),
    said(
        "a permission misspelt",
        r"W026.*'shop\.veiw_order'.*\n.*Did you mean 'shop\.view_order'",
        MCP,
        "shop.view_order",
        "shop.veiw_order",
    ),
    said(
        "a scope misspelt",
        r"W134.*'mcp:raed'.*\n.*Did you mean 'mcp:read'",
        MCP,
        "read_only=True,",
        'scopes=["mcp:raed"],',
    ),
    said(
        "a tool without type hints",
        r"ImproperlyConfigured: revenue: year needs a type annotation.*$",
        MCP,
        "year: int",
        "year",
    ),
    said(
        "a tool without a docstring",
        r"W022.*'revenue'.*no description.*\n.*HINT: Write a docstring",
        MCP,
        '    """Revenue of a year."""\n',
        "",
    ),
    said(
        "a tool that does not take the request",
        r"ImproperlyConfigured: revenue must take the request as its first parameter.*$",
        MCP,
        "request, year",
        "year",
    ),
    said(
        "two tools of one name",
        r"AlreadyRegistered: A tool named 'list_models' is already registered.*$",
        MCP,
        "@mcp.tool(",
        '@mcp.tool(name="list_models", ',
    ),
    said(
        "a model by its name",
        r"ImproperlyConfigured: 'shop\.Order' is not a model: register takes the model's class\.$",
        MCP,
        "register(Order)",
        'register("shop.Order")',
    ),
    said(
        "the decorator without a model",
        r"ValueError: At least one model must be passed to register: @mcp\.register\(Order\)\.$",
        MCP,
        "register(Order)",
        "register",
    ),
    Mistake(
        "a model that has no ModelAdmin",
        r"NotRegistered: shop\.Order has no ModelAdmin.*$",
        [(ADMIN, "admin.site.register(Order)", ""), (MCP, "mcp.ModelExposure", "mcp.AdminExposure")],
        fresh=True,
    ),
]


class Forge:
    """A process that makes the mistakes."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(FORGE), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def make(self, mistake: Mistake) -> str:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps({"edits": mistake.edits, "command": mistake.command}), file=self.process.stdin, flush=True)
        printed: str = json.loads(self.process.stdout.readline())
        return printed

    def close(self) -> None:
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def forge() -> Iterator[Callable[[Mistake], str]]:
    running: dict[str, Forge] = {}

    def make(mistake: Mistake) -> str:
        kind = "fresh" if mistake.fresh else "ready"
        if kind not in running:
            running[kind] = Forge(kind)
        return running[kind].make(mistake)

    yield make
    for started in running.values():
        started.close()


def test_the_project_without_a_mistake_has_no_findings(forge: Callable[[Mistake], str]) -> None:
    assert forge(Mistake("none", "")).strip() == "System check identified no issues (0 silenced)."


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_who_makes_a_mistake_is_told(forge: Callable[[Mistake], str], mistake: Mistake) -> None:
    printed = forge(mistake)
    assert re.search(mistake.told, printed.strip(), re.MULTILINE), printed


# What clients are told, of tokens and users


def expire(client: MCPClient) -> None:
    get_access_token_model().objects.update(expires=timezone.now() - timedelta(minutes=1))


def deactivate(client: MCPClient) -> None:
    User.objects.update(is_active=False)


def mistype(client: MCPClient) -> None:
    client.headers["Authorization"] += "x"


def delete(client: MCPClient) -> None:
    get_access_token_model().objects.all().delete()


def use_elsewhere(client: MCPClient) -> None:
    get_access_token_model().objects.update(resource=["http://testserver/other"])


@pytest.mark.django_db
@pytest.mark.parametrize("mistake", [expire, deactivate, mistype, delete, use_elsewhere])
def test_a_token_that_does_not_work_sends_its_client_to_sign_in_again(mistake: Callable[[MCPClient], None]) -> None:
    client = MCPClient(make_superuser())
    assert client.tools()
    mistake(client)
    answer = client.send("tools/list", {})
    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer["WWW-Authenticate"]
    assert "/.well-known/oauth-protected-resource/mcp" in answer["WWW-Authenticate"]


@pytest.mark.django_db
def test_a_scope_that_was_not_granted_is_named() -> None:
    answer = MCPClient(make_superuser(), scopes=["mcp:read"]).send(
        "tools/call", {"name": "delete_record", "arguments": {"model": "testapp.author", "pk": 1}}
    )
    assert (answer.status_code, 'scope="mcp:read mcp:write"' in answer["WWW-Authenticate"]) == (403, True)


@pytest.mark.django_db
def test_a_user_without_permissions_is_told_why_there_is_nothing() -> None:
    client = MCPClient(make_user("nobody"))
    assert client.tools() == []
    assert "no permission to see any" in client.request("server/discover")["instructions"]
    assert "no permission" not in MCPClient(make_superuser()).request("server/discover")["instructions"]


@pytest.mark.django_db
def test_middleware_that_asks_everyone_to_sign_in_leaves_clients_their_answers(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    client = Client(enforce_csrf_checks=True)
    registration = {"redirect_uris": ["http://127.0.0.1:1/callback"], "token_endpoint_auth_method": "none"}
    assert client.post("/mcp", "{}", content_type="application/json").status_code == 401
    for document in ("oauth-protected-resource/mcp", "oauth-authorization-server"):
        assert client.get(f"/.well-known/{document}").status_code == 200
    assert client.post("/oauth/register", registration, content_type="application/json").status_code == 201
    assert client.post("/oauth/token", {"grant_type": "authorization_code"}).json()["error"]
    assert client.get("/oauth/authorize/?client_id=x")["Location"].startswith("/admin/login/")
