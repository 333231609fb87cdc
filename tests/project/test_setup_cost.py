"""What every command and worker of a project pays for the app: what is loaded, and what only a server loads."""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_django

pytestmark = pytest.mark.one_django

APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "channels",
    "oauth2_provider",
    "rest_framework",
    "shop",
]
MODELS = """
from django.db import models

class Order(models.Model):
    number = models.CharField(max_length=10)
"""
ADMIN = """
from django.contrib import admin
from .models import Order

admin.site.register(Order)
"""
EXPOSURE = """
import mcp_django as mcp
from mcp_django.context.request import MCPRequest
from .models import Order

@mcp.register(Order)
class OrderExposure(mcp.ModelExposure):
    fields = ["id", "number"]
    actions = ["ship"]

    def get_queryset(self, request: MCPRequest):
        return super().get_queryset(request)

    @mcp.action(permissions=["change"], destructive=False)
    def ship(self, request, queryset, *, carrier: str = "DHL"):
        "Ship."
"""
FUNCTIONS = """
@mcp.tool(read_only=True)
def revenue(request, year: int) -> dict[str, int]:
    "Tell the revenue."
    return {}

@mcp.prompt
def triage(request, order: Order) -> str:
    "Look at an order."
    return ""

@mcp.resource("shop://policy/{part}")
def policy(request, part: str) -> str:
    "Return a part of the policy."
    return ""
"""
URLS = """
from django.contrib import admin
from django.urls import include, path
import mcp_django

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
]
"""
# The models of the protocol, and what makes them.
PROTOCOL = {"annotated_types", "mcp_types", "pydantic", "pydantic_core"}


def written(folder: Path) -> Path:
    """Write a project with a model, an admin and URLs."""
    shop = folder / "shop"
    shop.mkdir()
    for name, text in {"__init__": "", "models": MODELS, "admin": ADMIN, "urls": URLS}.items():
        (shop / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return written(tmp_path)


def loaded(project: Path, code: str = "", *apps: str) -> set[str]:
    """Return the modules that a process of the project has after ``django.setup()`` and ``code``."""
    source = f"""
import json, sys
sys.path.insert(0, {str(project)!r})
from django.conf import settings
settings.configure(
    INSTALLED_APPS={[*APPS, *apps]!r}, ROOT_URLCONF="shop.urls", SECRET_KEY="x" * 50, USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", DEBUG=True,
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}},
    MCP_DJANGO={{"BASE_URL": "https://shop.example"}},
    OAUTH2_PROVIDER={{}} if {not apps} else __import__("mcp_django.oauth").oauth.provider_settings(),
)
import django
django.setup()
{code}
print(json.dumps(list(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(found)


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a process of the project without the app."""
    return loaded(written(tmp_path_factory.mktemp("without")))


def own(modules: set[str]) -> set[str]:
    """Those of the app; a package that holds nothing but its modules costs nothing."""
    return {name for name in modules if is_own(name) and not is_empty(name)}


def is_own(name: str) -> bool:
    return name.partition(".")[0] == "mcp_django"


def is_empty(name: str) -> bool:
    package = Path(mcp_django.__file__).parents[1].joinpath(*name.split("."), "__init__.py")
    return package.exists() and len(ast.parse(package.read_text()).body) <= 1


@pytest.mark.parametrize(
    ("mcp", "most"), [(None, 22), (EXPOSURE, 32), (EXPOSURE + FUNCTIONS, 35)], ids=["admin", "exposure", "functions"]
)
def test_setup_loads_what_declarations_need_and_no_more(
    project: Path, without: set[str], mcp: str | None, most: int
) -> None:
    if mcp is not None:
        (project / "shop" / "mcp.py").write_text(mcp)
    cost = loaded(project, "", "mcp_django") - without
    assert len(own(cost)) <= most, sorted(own(cost))
    others = {name for name in cost if not is_own(name)}
    assert {name.partition(".")[0] for name in others} <= {"django", "orjson", "shop"} | sys.stdlib_module_names
    # The bus of changes, and what runs one, are for who changes something.
    assert "mcp_django.subscriptions.bus" not in cost
    assert len(others) <= 15, sorted(others)


# Each may load what those after it need, and none the models.
COMMANDS = """
import contextlib, io
from django.core.management import call_command
for name, options in (
    ("check", {"fail_level": "CRITICAL"}),
    ("check", {"deploy": True, "fail_level": "CRITICAL"}),
    ("migrate", {"run_syncdb": True, "verbosity": 0}),
    ("shell", {"command": "pass"}),
):
    with contextlib.redirect_stderr(io.StringIO()):
        call_command(name, **options)
    for module in %s & sys.modules.keys():
        sys.exit(f"{name} {options} loads {module}")
"""
# After these, as their tables are there.
SAVES = """
from shop.models import Order
import shop.urls
Order.objects.create(number="A1").delete()
"""


def test_no_command_loads_the_protocols_models_nor_does_who_saves_rows(project: Path) -> None:
    (project / "shop" / "mcp.py").write_text(EXPOSURE + FUNCTIONS)
    assert not PROTOCOL & loaded(project, COMMANDS % PROTOCOL + SAVES, "mcp_django")


# Migrations would make them one change after the other.
TABLES = """
from django.apps import apps
from django.core.management import call_command
settings.MIGRATION_MODULES = {app.label: None for app in apps.get_app_configs()}
call_command("migrate", run_syncdb=True, verbosity=0)
"""
# What serves, and what its first client then loads.
SERVERS = {
    "asgi": "from mcp_django.asgi import get_asgi_application\nget_asgi_application()",
    "stdio": """
from unittest.mock import patch
from django.contrib.auth.models import User
from django.core.management import call_command
from mcp_django.management.commands import mcp_stdio
from mcp_django.transports.stdio.server import StdioServer
User.objects.create_superuser("admin")

async def run(self):
    pass

# Standard output stays with the test.
with patch.object(StdioServer, "run", run), patch.object(mcp_stdio, "claim", lambda: (0, 1)):
    call_command("mcp_stdio", user="admin")
""",
}
CLIENT = """
from django.conf import settings
from django.contrib.auth.models import User
from mcp_django.testing import MCPClient

settings.ALLOWED_HOSTS = ["*"]
user = User.objects.create_superuser("client")
# The test's client, and the URLs that any request reads, are not the server's.
import shop.urls
served = set(sys.modules)
client = MCPClient(user=user)
client.tools()
client.request("resources/list")
client.call("list_models")
client.call("create_record", model="shop.order", values={"number": "A1"})
client.call("query_records", model="shop.order", order_by=["number"])
client.call("update_record", model="shop.order", pk=1, values={"number": "A2"})
client.read("django://shop/order/1")
print(json.dumps(sorted(set(sys.modules) - served)))
raise SystemExit
"""


@pytest.mark.parametrize("server", SERVERS)
def test_the_first_client_waits_for_nothing_to_be_loaded(project: Path, server: str) -> None:
    late = loaded(project, f"{TABLES}{SERVERS[server]}\n{CLIENT}", "mcp_django")
    assert not own(late)
    assert {name.partition(".")[0] for name in late} <= {"django"}, sorted(late)


def test_a_settings_module_loads_the_settings_alone() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport mcp_django.oauth\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert found == {"mcp_django", "mcp_django.oauth", "mcp_django.oauth.toolkit_settings", "mcp_django.scopes"}


def test_type_checkers_read_the_names_where_they_are_loaded_from() -> None:
    (block,) = [
        node
        for node in ast.parse(inspect.getsource(mcp_django)).body
        if isinstance(node, ast.If) and node.orelse == [] and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    read = {
        alias.name: f"mcp_django.{node.module}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(read) == set(mcp_django.__all__) <= set(dir(mcp_django))
    for name, module in read.items():
        assert getattr(mcp_django, name) is getattr(sys.modules[module], name)


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ModelAdmin'"):
        mcp_django.ModelAdmin  # noqa: B018
