"""What a release is made of, built once: the source distribution, and the wheel that is made from it.

Each is installed into a virtual environment that knows nothing of this repository.
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import tomllib
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.python_client import Person, call
from tests.e2e.servers import Server

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e

PROJECT = {
    "settings.py": """
import os
from mcp_django.oauth.toolkit_settings import provider_settings

BASE_URL = os.environ["BASE_URL"]
DEBUG = True
SECRET_KEY = "only-for-a-test-of-the-wheel-and-of-nothing-else"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "django.contrib.staticfiles",
    "channels", "oauth2_provider", "rest_framework", "mcp_django", "project",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "project.urls"
STATIC_URL = "static/"
LOGIN_URL = "admin:login"
USE_TZ = True
MCP_DJANGO = {"BASE_URL": BASE_URL}
OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL)
""",
    "urls.py": """
from django.contrib import admin
from django.urls import include, path
import mcp_django

urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
]
""",
    "mcp.py": """
from django.contrib.auth.models import Group
import mcp_django as mcp

@mcp.register(Group)
class GroupExposure(mcp.ModelExposure):
    fields = ["id", "name"]

@mcp.tool(read_only=True)
def greet(request, name: str) -> str:
    '''Say hello.'''
    return f"Hello, {name}"
""",
}

# In one process, which loads the project once.
COMMANDS = """
from django.core.management import execute_from_command_line as run

run(["django", "check", "--fail-level", "ERROR"])
run(["django", "makemigrations", "--check", "--dry-run"])
run(["django", "migrate", "--verbosity", "0"])
run(["django", "createsuperuser", "--noinput", "--username", "admin", "--email", "admin@example.com"])
run(["django", "mcp_token", "admin"])
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """What this process runs with, less what would let a child find the repository."""
    return {name: value for name, value in os.environ.items() if name not in {"DJANGO_SETTINGS_MODULE", "PYTHONPATH"}}


def environment_in(directory: Path, *installed: str | Path) -> Path:
    """Make a virtual environment, have pip install these with its options, and return its interpreter.

    The pip is that of the tests, and it compiles nothing: most of what it installs is never imported.
    """
    venv.create(directory)
    interpreter = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", interpreter, "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", "--no-compile", *installed, cwd=directory)
    return interpreter


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with what a release is made with."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["release"]
    return environment_in(tmp_path_factory.mktemp("tools"), *group)


@pytest.fixture(scope="module")
def built(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the source distribution and the wheel."""
    target = tmp_path_factory.mktemp("dist")
    run(tools, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    [found] = built.glob("django_mcp_orm-*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the source distribution holds."""
    target = tmp_path_factory.mktemp("unpacked")
    [found] = built.glob("django_mcp_orm-*.tar.gz")
    with tarfile.open(found) as archive:
        archive.extractall(target, filter="data")
    [directory] = target.iterdir()
    return directory


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new virtual environment that holds the wheel and what it asks for."""
    return environment_in(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"mcp_django"}
    for source in (ROOT / "mcp_django").rglob("*"):
        if source.is_file() and source.suffix != ".pyc":
            assert str(source.relative_to(ROOT)) in names
    for part in ("py.typed", "templates/", "migrations/", "locale/ar/LC_MESSAGES/django.mo"):
        assert any(name.startswith(f"mcp_django/{part}") for name in names), part
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def metadata_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def test_the_index_takes_both_and_shows_the_readme(tools: Path, built: Path) -> None:
    files = sorted(built.iterdir())
    assert len(files) == 2
    assert run(tools, "-m", "twine", "--no-color", "check", "--strict", *files, cwd=built).count("PASSED") == 2


def test_the_version_is_that_of_the_project(wheel: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == "0.2.0"
    assert f"\nVersion: {version}\n" in metadata_of(wheel)
    assert wheel.name.startswith(f"django_mcp_orm-{version}-")


def test_the_readme_of_the_index_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert "# django-mcp-orm" in metadata
    links = re.findall(r"\]\(([^)]*)\)", metadata)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    assert "Provides-Extra: dev" not in metadata
    assert "\nProject-URL:" not in metadata


def test_with_the_address_of_the_repository_links_and_pictures_are_absolute(tools: Path, tmp_path: Path) -> None:
    address = "https://git.example/shop/mcp"
    for name in ("LICENSE", "README.md", "hatch_build.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    text = (ROOT / "pyproject.toml").read_text()
    assert text.count('\nrepository = ""\n') == 1
    (tmp_path / "pyproject.toml").write_text(text.replace('repository = ""', f'repository = "{address}/"'))
    metadata = json.loads(run(tools, "-m", "hatchling", "metadata", cwd=tmp_path))
    at = metadata["version"]
    assert metadata["urls"] == {
        "Repository": address,
        "Documentation": f"{address}/blob/v{at}/docs/index.md",
        "Changelog": f"{address}/blob/v{at}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
    readme = metadata["readme"]["text"]
    own = {name for name in re.findall(r"\]\(([^)]*)\)", (ROOT / "README.md").read_text()) if "://" not in name}
    assert own
    for name in own:
        kind = "raw" if re.search(rf"!\[[^]]*\]\({re.escape(name)}\)", (ROOT / "README.md").read_text()) else "blob"
        assert f"]({address}/{kind}/v{at}/{name})" in readme
        assert f"]({name})" not in readme


def test_the_source_distribution_has_all_that_the_repository_has(unpacked: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("it is a source distribution itself")
    tracked = set(run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines())
    held = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    present = {name for name in tracked if (ROOT / name).exists()}
    assert present - held == set()
    assert held - present == {"PKG-INFO"}


def test_the_tests_run_in_the_source_distribution(unpacked: Path) -> None:
    place = run(sys.executable, "-c", "import mcp_django; print(mcp_django.__file__)", cwd=unpacked)
    assert Path(place.strip()).is_relative_to(unpacked)
    some = ["tests/unit/test_scopes.py", "tests/unit/test_routing.py", "tests/unit/transports/test_client_configs.py"]
    assert " passed" in run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *some, cwd=unpacked)


def test_what_is_installed_from_the_source_distribution_is_what_is_in_the_wheel(
    built: Path, wheel: Path, tmp_path: Path
) -> None:
    [source] = built.glob("django_mcp_orm-*.tar.gz")
    python = environment_in(tmp_path / "environment", "--no-deps", source)
    code = "import importlib.metadata as m; print('\\n'.join(map(str, m.files('django-mcp-orm'))))"
    files = {name for name in run(python, "-c", code, cwd=tmp_path).splitlines() if name.startswith("mcp_django/")}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("mcp_django/")}
    assert {name for name in files if not name.endswith(".pyc")} == held


def test_a_project_of_three_files_lists_its_tools(python: Path, tmp_path: Path) -> None:
    for name, text in PROJECT.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    base_url = f"http://127.0.0.1:{free_port()}"
    environment = {"BASE_URL": base_url, "DJANGO_SETTINGS_MODULE": "project.settings"}

    token = run(python, "-c", COMMANDS, cwd=tmp_path, **environment).split()[-1]
    with serving(python, base_url, tmp_path, environment):
        tools = {tool["name"] for tool in list_tools(f"{base_url}/mcp", token)}
        with pytest.raises(urllib.error.HTTPError) as refused:
            list_tools(f"{base_url}/mcp", "wrong")
        refused.value.close()
    assert {"greet", "list_models", "query_records"} <= tools
    assert refused.value.code == 401


# A try of the package


@pytest.fixture(scope="module")
def target(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel alone: what it needs, and a server, is what the tests run with."""
    directory = tmp_path_factory.mktemp("target")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "install", "--no-compile", "--no-deps", "--target", directory, wheel, cwd=directory)
    return directory


@contextmanager
def trying(target: Path, cwd: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `python -m mcp_django` in a folder, until it has said all: yield its process and what it said."""
    (cwd / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "mcp_django", *arguments],
        cwd=cwd,
        env={**clean_environment(), "PYTHONPATH": str(target), "TMPDIR": str(cwd / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            if line.startswith("Afterwards"):
                break
        else:
            pytest.fail(said)
        yield process, said
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_wheel_holds_a_shop_to_try_that_answers_and_leaves_nothing_behind(target: Path, tmp_path: Path) -> None:
    with trying(target, tmp_path, "--port", "0") as (process, said):
        [address] = set(re.findall(r"--url (http://127\.0\.0\.1:\d+)/mcp", said))
        [password] = re.findall(r"admin, with the password (\S+)", said)
        [folder] = (tmp_path / "tmp").iterdir()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp"]
        assert {path.name for path in folder.iterdir()} >= {"tiny-shop.sqlite3"}
        days = asyncio.run(days_by_carrier(Server(address, folder, {}), password))
        for page in ("static/admin/css/base.css", ".well-known/oauth-protected-resource/mcp"):
            assert httpx2.get(f"{address}/{page}").status_code == 200
        assert httpx2.get(f"{address}/").headers["location"] == "/admin/mcp_django/callentry/connect/"
        process.terminate()
        assert process.wait(30) == 0
    assert not folder.exists()
    # What it tells people to ask has an answer.
    assert 9 < days.pop("Post") < 11
    assert {*days} == {"DHL", "FedEx", "UPS"}
    assert all(2 < average < 3 for average in days.values())


async def days_by_carrier(server: Server, password: str) -> dict[str, float]:
    """Sign in as a person does, with the official client, and ask what the shop proposes to ask."""
    person = Person(server, "admin")
    person.browser.password = password
    asked = {"model": "tinyshop.order", "aggregates": ["avg:delivered-shipped"], "group_by": ["carrier"]}
    async with person.connect("auto") as client:
        answer = await call(client, "aggregate_records", **asked, filters={"status": "delivered"})
    return dict(answer["rows"])


def test_what_is_installed_without_a_server_says_how_to_get_one(python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [python, "-m", "mcp_django"], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"{python} -m pip install daphne" in done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(python: Path, base_url: str, cwd: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run Django's own server until it is no longer needed."""
    address = base_url.removeprefix("http://")
    server = subprocess.Popen(
        [str(python), "-u", "-m", "django", "runserver", "--noreload", "--skip-checks", address],
        cwd=cwd,
        env={**clean_environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout is not None
    try:
        said = []
        for line in server.stdout:
            said.append(line)
            if "Quit the server" in line:
                break
        else:
            pytest.fail("".join(said))
        yield
    finally:
        server.terminate()
        server.communicate(timeout=10)


def list_tools(url: str, token: str) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        url,
        data=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode(),
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-11-25",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["result"]["tools"]
