"""The README and `docs/` say what is so: each snippet is run, each table, link, command and id is compared."""

import ast
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.utils import timezone
from PIL import Image

import mcp_django
from docs.pictures.film import MOVING
from evals import trials
from mcp_django.checks.oauth import TOOLKIT_RULES
from mcp_django.conf.defaults import DEFAULTS
from mcp_django.models import ApprovalRequest, Change
from mcp_django.operating.switches import find_switches
from mcp_django.signals import approval_decided, approval_requested, change_undone
from mcp_django.sites import CLOSED_APPS
from mcp_django.testing import MCPClient
from mcp_django.tools.generic import ToolSet
from mcp_django.transports.client_configs import CLIENTS, Client, Connection
from tests.documentation import DOCS, README, ROOT, Block, blocks_in, blocks_of, section
from tests.factories import make_author, make_superuser
from tests.project.test_tutorial import Reader, steps_of
from tests.readme_project.builder import SOURCES, Project, ask, made, readme_file, take_fast_road

pytestmark = pytest.mark.one_django

PAGES = [
    README,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "example_project/README.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((DOCS / "clients").glob("*.md")),
]
# Their snippets are run by tests of their own.
FOLLOWED = {DOCS / f"{name}.md" for name in ("agents", "asking", "cookbook", "existing-project", "tutorial")}
# Programs that are not this project's; what is said of clients is compared with what `mcp_install` prints.
FOREIGN = {"claude", "code", "codex", "daphne", "gemini", "git", "gunicorn", "npx", "opencode", "qwen", "uvicorn"}
# Modules that others made, for a release.
TOOLS = {"build", "celery", "tarfile", "twine"}


BLOCKS = [block for page in PAGES if page not in FOLLOWED for block in blocks_of(page)]


def snippets(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


# The README's project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return made(tmp_path_factory.mktemp("readme"))


def test_the_three_steps_give_a_project_without_warnings(project: Project) -> None:
    done = project.run("manage.py", "check", "--fail-level=WARNING")
    assert done.returncode == 0, done.stderr


def test_who_follows_the_readme_word_by_word_hears_that_all_is_well(owner: Reader) -> None:
    for block in blocks_in(section(README, "Add it to your project"), README):
        if block.file:
            owner.write(replace(block, text=f"# project/{block.text.removeprefix('# ')}"))
            continue
        for step in steps_of(block):
            step.command = step.command.partition("  # ")[0]
            match step.command.split()[2:]:
                case ["createsuperuser", *_]:
                    # What a person answers, whose e-mail address nobody needs.
                    step.shown = ["Email address:", "Password:", "Password (again):", "Superuser created successfully."]
                case ["runserver"]:
                    step.shown = ["Starting ASGI/Daphne ... development server at http://127.0.0.1:8000/"]
                case ["mcp_doctor", *_]:
                    step.shown = ["ok    System checks", "ok    Call: 5 tools", "ok    Stream", "All is well."]
            owner.do(step)
    # What is read is not written.
    (step,) = steps_of(Block(README, 0, "console", "$ python manage.py mcp_inspect --user ada"))
    seen = owner.manage(step, ["manage.py", "mcp_inspect", "--user", "ada"])
    assert "shop.order" in seen
    assert "READ_ONLY" in seen


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Reader]:
    """A person with a project as `startproject` makes it, and an app with models and an admin."""
    path = tmp_path / "site"
    path.mkdir()
    call_command("startproject", "project", str(path))
    shutil.copytree(SOURCES / "shop", path / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    settings = path / "project" / "settings.py"
    settings.write_text(settings.read_text() + '\nINSTALLED_APPS += ["shop"]\n')
    take_fast_road(path / "project" / "asgi.py")
    person = Reader(path)
    person.environment["DJANGO_SETTINGS_MODULE"] = "project.settings"
    (step,) = steps_of(Block(README, 0, "console", "$ python manage.py makemigrations shop"))
    # Before the snippets are written, the project is plain Django.
    person.run(step, ["manage.py", "makemigrations", "shop"])
    yield person
    person.forget()
    person.stop()


def test_the_runserver_of_the_readme_can_stream(project: Project) -> None:
    code = "import django; django.setup(); from django.core.management import get_commands"
    assert project.run("-c", f"{code}; print(get_commands()['runserver'])").stdout.strip() == "daphne"


def test_the_settings_of_the_readme_leave_what_a_project_has() -> None:
    """Apps may be a tuple, a database have options, and an authorization server its own scopes."""
    names: dict[str, Any] = {
        "INSTALLED_APPS": ("django.contrib.admin", "shop"),
        "DATABASES": {"default": {"OPTIONS": {"timeout": 20}}},
        "OAUTH2_PROVIDER": {"SCOPES": {"invoices": "Invoices"}, "ACCESS_TOKEN_EXPIRE_SECONDS": 60},
    }
    text = readme_file("settings.py")
    (kept,) = re.findall(r"# keeps yours with provider_settings\(\.\.\., (.+)\)$", text, re.MULTILINE)
    exec(text.replace("base_url=BASE_URL)", f"base_url=BASE_URL, {kept})"), names)
    assert names["INSTALLED_APPS"][:3] == ["daphne", "django.contrib.admin", "shop"]
    assert names["DATABASES"]["default"]["OPTIONS"] == {"timeout": 20, "transaction_mode": "IMMEDIATE"}
    assert names["OAUTH2_PROVIDER"]["SCOPES"].keys() == {"mcp:read", "mcp:write", "mcp:admin", "invoices"}
    assert names["OAUTH2_PROVIDER"]["ACCESS_TOKEN_EXPIRE_SECONDS"] == 60


def test_the_project_of_the_readme_lists_its_tools_to_a_client_with_a_token(project: Project) -> None:
    token = project.token
    with project.server() as address:
        tools = [tool["name"] for tool in ask(f"{address}/mcp", token, "tools/list")["tools"]]
        resources = [found["uri"] for found in ask(f"{address}/mcp", token, "resources/list")["resources"]]
        prompts = [prompt["name"] for prompt in ask(f"{address}/mcp", token, "prompts/list")["prompts"]]
        revenue = ask(f"{address}/mcp", token, "tools/call", name="revenue_by_month", arguments={"year": 2026})
    own = [tool.name for tool in ToolSet.GENERIC.value]
    assert tools[: len(own)] == own
    assert {"mark_shipped_shop_order", "revenue_by_month"} <= set(tools)
    assert {"django://shop/order", "django://shop/customer"} <= set(resources)
    assert prompts == ["triage_order"]
    assert not revenue.get("isError")


def test_the_program_of_the_page_about_clients_gets_an_answer(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = (block.text for block in snippets("python") if block.file == "client.py")
    namespace: dict[str, Any] = {"__name__": "client"}
    exec(program, namespace)
    with project.server() as address:
        namespace["run"](f"{address}/mcp", project.token)
    assert "shop.order" in capsys.readouterr().out


def test_the_tests_that_the_readme_shows_pass(project: Project) -> None:
    done = project.run("manage.py", "test", "shop")
    assert done.returncode == 0, done.stderr
    assert "Ran 3 tests" in done.stderr


def test_each_declaration_setting_and_call_in_the_documentation_works(project: Project) -> None:
    python = [block for block in snippets("python") if block.page != README and not is_first(block)]
    given = {
        "declarations": [(block.where, block.text) for block in python if not block.file],
        "settings": [(block.where, block.text) for block in python if block.file == "settings.py"],
        "calls": [(block.where, data) for block in snippets("json") if "name" in (data := json.loads(block.text))],
    }
    assert all(len(found) >= 2 for found in given.values())
    assert project.script("snippets", json.dumps(given)) == ""


def is_first(block: Block) -> bool:
    """Whether a block is that of the front page which shows lines of several files."""
    return block.page == DOCS / "index.md" and block.text.startswith("INSTALLED_APPS")


def test_the_first_lines_of_the_front_page_are_those_that_coding_agents_write() -> None:
    (first,) = filter(is_first, snippets("python"))
    written = {line.strip().rstrip(",") for block in blocks_of(DOCS / "agents.md") for line in block.text.splitlines()}
    lines = first.text.splitlines()
    assert len(lines) == 3
    assert set(lines) <= written


def test_each_recipe_of_the_cookbook_does_what_it_promises(project: Project) -> None:
    parts = re.split(r"^## (.+)\n", (DOCS / "cookbook.md").read_text(), flags=re.MULTILINE)[1:]
    recipes = dict(zip(parts[::2], parts[1::2], strict=True))
    blocks = {heading: re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) for heading, text in recipes.items()}
    given = {heading: source for heading, (source,) in blocks.items()}
    assert len(given) >= 12
    for page, heading in (("tenants", "By a column"), ("actions", "Buttons of the change page")):
        (given[heading],) = re.findall(r"^```python\n(.*?)^```$", section(DOCS / f"{page}.md", heading), re.M | re.S)
    assert project.script("recipes", json.dumps(given), without="shop.mcp") == ""


def test_every_python_block_has_a_test_here() -> None:
    tested = {"", "settings.py", "urls.py", "asgi.py", "client.py", "shop/mcp.py", "shop/signin.py", "shop/tests.py"}
    # The page of metrics is tested with what it shows: tests/unit/operating/test_metrics.py. So is the router of
    # replicas: tests/unit/context/test_databases.py, and the limit of costs: tests/unit/orm/test_query_limits.py.
    tested |= {
        "shop/alerts.py",
        "shop/approvals.py",
        "shop/costs.py",
        "shop/routers.py",
        "shop/receivers.py",
        # What PostgreSQL does with these: tests/behaviour/test_row_level_security.py.
        "shop/migrations/0002_policies.py",
        "shop/row_security.py",
        "shop/tenant_schemas.py",
        "metrics_urls.py",
        "shop/sinks.py",
        "shop/privacy.py",
        "shop/stocktaking.py",
        "shop/undone.py",
    }
    # The recipes of engines are run by workers: tests/e2e/test_engines.py.
    tested |= {"project/settings.py", "project/celery.py", "shop/tasks.py"}
    assert {block.file for block in snippets("python")} <= tested
    assert {block.text for block in snippets("python") if block.file == "asgi.py"} == {readme_file("asgi.py")}
    assert {block.language for block in BLOCKS} <= {"python", "console", "json", "nginx", "sh", "toml", "yaml"}


@pytest.mark.django_db
def test_changes_are_off_while_stock_is_taken() -> None:
    (block,) = [block for block in snippets("python") if block.file == "shop/stocktaking.py"]
    names: dict[str, Any] = {"__name__": "shop.stocktaking"}
    exec(block.text, names)
    user = make_superuser()
    names["begin"](user)
    assert [switch.reason for switch in find_switches("writes")] == ["Stocktaking"]
    names["finish"](user)
    assert not find_switches("writes")


def test_the_receiver_of_undone_changes_says_who_took_what_back(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for block in snippets("python") if block.file == "shop/undone.py"]
    names: dict[str, Any] = {"__name__": "shop.undone"}
    exec(block.text, names)
    change = Change(pk=42, summary="3 orders: status pending -> cancelled")
    change_undone.send(Change, change=change, request=SimpleNamespace(user="ada"))
    assert capsys.readouterr().out == "ada took back change 42: 3 orders: status pending -> cancelled\n"


def test_the_receivers_of_approvals_say_who_asks_and_who_decided(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [block for block in snippets("python") if block.file == "shop/approvals.py"]
    names: dict[str, Any] = {"__name__": "shop.approvals"}
    exec(block.text, names)
    change = Change(pk=42, username="ada", state="refused", by="grace")
    told = {"change": change, "approval": ApprovalRequest(change=change, rule_name="Refunds above 100", word="Not yet")}
    try:
        for signal in (approval_requested, approval_decided):
            signal.send(ApprovalRequest, **told)
    finally:
        approval_requested.disconnect(names["tell_managers"])
        approval_decided.disconnect(names["note"])
    asked, decided = capsys.readouterr().out.splitlines()
    assert asked == "Request 42 of ada: Refunds above 100"
    assert decided == "Request 42 is refused, decided by grace. Not yet"


@pytest.mark.django_db
def test_the_receiver_notes_what_was_taken_back(capsys: Any, django_capture_on_commit_callbacks: Any) -> None:
    from mcp_django.signals import change_undone

    (block,) = [block for block in snippets("python") if block.file == "shop/undone.py"]
    names: dict[str, Any] = {"__name__": "shop.undone"}
    exec(block.text, names)
    client = MCPClient(make_superuser("ada"))
    author = make_author("Ada")
    update = {"model": "testapp.author", "pk": author.pk, "values": {"name": "Eve"}}
    change = client.call("update_record", **update).structured["change"]
    try:
        with django_capture_on_commit_callbacks(execute=True):
            assert not client.call("undo_change", change=change).is_error
    finally:
        change_undone.disconnect(names["note"])
    assert capsys.readouterr().out == f"ada took back change {change}: author Eve changed: name\n"


@pytest.mark.django_db
def test_the_receiver_tells_the_user(mailoutbox: list[Any], settings: Any) -> None:
    from django.contrib.auth.models import User
    from oauth2_provider.models import get_application_model

    from mcp_django.signals import client_connected

    (block,) = [block for block in snippets("python") if block.file == "shop/receivers.py"]
    names: dict[str, Any] = {"__name__": "shop.receivers"}
    exec(block.text, names)
    # Django 6.1 wants it said how mail is sent.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
    try:
        user = User(username="ada", email="ada@shop.example")
        client_connected.send(None, application=get_application_model()(name="Robot"), user=user, scopes=[])
    finally:
        client_connected.disconnect(names["tell_user"])
    assert [mail.to for mail in mailoutbox] == [["ada@shop.example"]]


def test_the_receiver_of_alerts_passes_on_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    from mcp_django.models import CallEntry
    from mcp_django.signals import alert_raised

    (block,) = [block for block in snippets("python") if block.file == "shop/alerts.py"]
    names: dict[str, Any] = {"__name__": "shop.alerts"}
    exec(block.text, names)
    try:
        for kind in ("failures", "budget"):
            alert_raised.send(CallEntry, kind=kind, text="Calls fail.", facts={"failed": 6, "calls": 20, "minutes": 5})
    finally:
        alert_raised.disconnect(names["pass_on"])
    assert capsys.readouterr().out == "Calls fail. (6 of 20)\n"


@pytest.mark.django_db
def test_the_console_reads_the_queries_that_its_page_shows() -> None:
    from mcp_django.console.call_query import CallQuery
    from mcp_django.models import Change

    Change.objects.create(pk=1234, state="done", time=timezone.now(), call="ab12")
    rows = re.findall(r"^\| (.+) \| (.+) \|$", section(DOCS / "console.md", "The query"), re.MULTILINE)
    queries = [text for row in rows for cell in row for text in re.findall(r"`([^`]+)`", cell)]
    assert len(queries) > 25
    for text in queries:
        query = CallQuery.parse(text.replace("…", "ab12"), timezone.now())
        assert query.terms, text
        assert not query.problems, text


def test_the_projects_own_sink_of_calls_refuses_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from mcp_django.context.call_record import CallRecord
    from mcp_django.exceptions import CallRefused
    from mcp_django.signals import call_finished, call_started

    (block,) = [block for block in snippets("python") if block.file == "shop/sinks.py"]
    names: dict[str, Any] = {"__name__": "shop.sinks"}
    exec(block.text, names)
    order = CallRecord(tool="create_record", model="shop.order", outcome="refused:stocktaking")
    try:
        call_started.send(None, request=None, record=CallRecord(tool="query_records", model="shop.order"))
        with pytest.raises(CallRefused) as caught:
            call_started.send(None, request=None, record=order)
        call_finished.send(None, request=None, record=order)
    finally:
        call_started.disconnect(names["refuse_at_stocktaking"])
        call_finished.disconnect(names["count"])
    assert caught.value.reason == "stocktaking"
    assert capsys.readouterr().out == "create_record refused:stocktaking 0.0\n"


def test_the_hook_for_privacy_says_what_may_be_kept() -> None:
    (block,) = [block for block in snippets("python") if block.file == "shop/privacy.py"]
    names: dict[str, Any] = {}
    exec(block.text, names)
    assert names["redact"]("create_record", {"name": "Ada"}, {}) == (None, None)
    assert names["redact"]("query_records", {"search": "Ada"}, {"rows": []}) == ({"search": "Ada"}, {"rows": []})


# Commands


COMMANDS = [
    (block.where, shlex.split(line.removeprefix("$ "), comments=True))
    for block in [*snippets("console"), *snippets("sh")]
    for line in block.text.splitlines()
]
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=[f"{where} {command}" for where, command in COMMANDS])
def test_commands_exist_with_their_options(where: str, command: list[str]) -> None:
    match command:
        case ["make", target]:
            assert target in TARGETS
        case ["python", "manage.py", name, *arguments] if where.startswith("example_project"):
            # Its apps are not among those that the tests install.
            assert not arguments
            assert name in get_commands() or [*(ROOT / "example_project").glob(f"*/management/commands/{name}.py")]
        case ["python", "manage.py", "db_worker" | "rqworker" | "procrastinate", *_]:
            assert where.startswith("docs/tasks.md")
        case ["python", "manage.py", name, *arguments]:
            load_command(name).create_parser("manage.py", name).parse_args(arguments)
        case ["python", "-m", "pip", "install", *names] if where.startswith("docs/tasks.md"):
            developing = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
            assert set(names) <= {name.partition(">=")[0] for name in developing}
        case ["python", "-m", "pip", "install", what]:
            # They are run in the reader's own project.
            extra = re.fullmatch(r"\.\./django-mcp-orm\[(\w+)\]", what)
            assert extra is not None
            assert extra[1] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        case ["python", "-m", "mcp_django"]:
            # What it says and serves: tests/project/test_packaging.py.
            pass
        case ["python", "-m", program, *_] if program in TOOLS:
            pass
        case [".venv/bin/python", "-m", "pytest", *arguments]:
            assert all((ROOT / name).exists() for name in arguments if name.endswith(".py"))
        case [".venv/bin/python", "-m", "evals", "run", *arguments]:
            trials.parser().parse_args(arguments)
        case [program, *_]:
            assert program in FOREIGN


def load_command(name: str) -> Any:
    app: Any = get_commands()[name]
    return load_command_class(app, name) if isinstance(app, str) else app


def test_make_targets_named_in_the_text_exist() -> None:
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)", page.read_text())}
    assert {"demo", "test", "lint", "bench", "fixture-server"} <= named <= TARGETS


def test_client_set_ups_are_those_of_mcp_install() -> None:
    ready: list[str] = []
    for connection in (
        Connection("shop", url=url) for url in ("http://127.0.0.1:8000/mcp", "https://shop.example/mcp")
    ):
        ready += [client.text(connection) for client in CLIENTS.values()]
        ready += [client.shell(connection) for client in CLIENTS.values()]
        ready += [client.after.format(name=connection.name, url=connection.url) for client in CLIENTS.values()]
    (table,) = re.findall(r"^\| client .*?\n\n", README.read_text(), re.MULTILINE | re.DOTALL)
    commands = [code for code in re.findall(r"`([^`]+)`", table) if re.match(r"(claude|codex|code|gemini|npx) ", code)]
    assert len(commands) == 6
    configured = [block.text.strip() for block in snippets("json") if "ervers" in block.text]
    for text in [*commands, *configured]:
        assert any("".join(text.split()) in "".join(set_up.split()) for set_up in ready)


# What `json` prints is for clients that have no page.
PAGED = {key: client for key, client in CLIENTS.items() if key != "json"}


@pytest.mark.parametrize(("key", "client"), PAGED.items(), ids=list(PAGED))
def test_the_page_of_a_client_says_what_mcp_install_prints(key: str, client: Client) -> None:
    connection = Connection("shop", url="https://shop.example/mcp")
    page = (DOCS / "clients" / f"{key}.md").read_text()
    assert page.startswith(f"# {client.title}\n")
    assert re.search(r"^Checked against \[[^]]+\]\(https://", page, re.MULTILINE)
    text = "".join(page.replace("`", "").split())
    said = [client.shell(connection), client.remote.format(url=connection.url)]
    said.append("" if said[0] or client.remote else client.text(connection))
    after = client.after.format(name=connection.name, url=connection.url)
    said.append(re.split("Run: ", after)[-1].rstrip("."))
    for part in said:
        assert "".join(part.replace("`", "").split()) in text


@pytest.mark.parametrize("page", sorted((DOCS / "clients").glob("*.md")), ids=lambda page: page.stem)
def test_the_page_of_a_client_says_what_one_sees(page: Path) -> None:
    """The consent page, the list of tools, and a first answer."""
    seen = section(page, "What you see")
    assert "](../consent.md)" in seen
    assert re.search(r"\btools\b", seen, re.IGNORECASE)
    assert "`list_models`" in seen or "shop.list_models" in seen


# Messages


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a module, where an expression of an f-string is a break."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def said_by_the_code() -> str:
    python = "\n".join(text for path in (ROOT / "mcp_django").rglob("*.py") for text in texts_of(path))
    return python + "".join(path.read_text() for path in (ROOT / "mcp_django" / "templates").rglob("*.html"))


def not_said(messages: list[str], code: str) -> list[str]:
    """Return the parts of messages, between what varies in them, that the code does not say."""
    parts = [part.strip() for message in messages for part in message.split("…") if len(part.strip(" .,;:")) > 2]
    return [part for part in parts if part not in code]


def test_the_messages_of_the_page_of_messages_are_those_of_the_code(said_by_the_code: str) -> None:
    headings = ("The server refuses requests", "A command says", "The model says")
    tables = "".join(section(DOCS / "messages.md", heading) for heading in headings)
    messages = re.findall(r"^\| `(.+?)` \| ", tables, re.MULTILINE)
    assert len(messages) > 25
    assert not_said(messages, said_by_the_code) == []


def test_each_trouble_has_a_cause_a_sign_and_a_remedy_and_quotes_the_code(said_by_the_code: str) -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    troubles = re.split(r"^### .+\n", page.partition("## Starting")[0], flags=re.MULTILINE)[1:]
    assert len(troubles) > 25
    for trouble in troubles:
        assert re.findall(r"^- \*\*(\w+(?: it)?)\.\*\*", trouble, re.MULTILINE) == ["Cause", "See it", "Do"]
    quoted = re.findall(r"\bsays\s+`([^`]+)`", page)
    assert len(quoted) > 15
    assert not_said(quoted, said_by_the_code) == []


# Tables, links, ids


# The changelog, and the page that leads to all others.
WITHOUT_QUESTION = {DOCS / f"{name}.md" for name in ("changes", "index", "checks", "settings")}
WRITTEN = sorted({*DOCS.glob("*.md"), *DOCS.glob("clients/*.md")} - WITHOUT_QUESTION)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.stem)
def test_a_page_says_first_what_its_reader_can_do_after_it_and_is_short(page: Path) -> None:
    title, _, text = page.read_text().partition("\n")
    assert title.startswith("# ")
    assert text.strip().startswith("After this page you ")
    assert len(text.split()) <= 2_500


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 160


def test_the_settings_page_is_as_the_table_of_settings_says() -> None:
    script = runpy.run_path(str(DOCS / "settings_page.py"))
    assert script["page"]() == (DOCS / "settings.md").read_text(), "run: python docs/settings_page.py"


def test_settings_named_in_the_text_exist() -> None:
    known = DEFAULTS.keys()
    for page in PAGES:
        for name in re.findall(r'MCP_DJANGO\["(\w+)"\]|"(AUTO_REGISTER|READ_ONLY|REGISTRATION)": ', page.read_text()):
            assert set(filter(None, name)) <= known


def test_the_tables_of_tools_and_closed_apps_are_complete() -> None:
    tools = (DOCS / "tools.md").read_text()
    own = [tool.name for tool in ToolSet.GENERIC.value]
    assert re.findall(r"^\| `(\w+_\w+)` \| `", tools, re.MULTILINE)[: len(own)] == own
    for tool in ToolSet.GENERIC.value:
        (row,) = re.findall(rf"^\| `{tool.name}` \| (.+?) \|", tools, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == tool.input_schema["properties"].keys()
    (apps,) = re.findall(r"nothing of the apps (.*?), unless", (DOCS / "exposures.md").read_text(), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", apps)) == CLOSED_APPS


def test_the_options_and_hooks_of_exposures_are_those_of_the_class() -> None:
    from mcp_django import ModelExposure

    options = set(re.findall(r"^\| `(\w+)` \| ", section(DOCS / "exposures.md", "Options"), re.MULTILINE))
    annotations = vars(ModelExposure)["__annotations__"]
    assert options == {name for name, kind in annotations.items() if not kind.startswith("ClassVar")}
    rows = re.findall(r"^\| (`.+?`) \| ", (DOCS / "hooks.md").read_text(), re.MULTILINE)
    hooks = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    public = {name for name, value in vars(ModelExposure).items() if callable(value) and not name.startswith("_")}
    assert hooks == public


def test_the_reference_has_every_public_name() -> None:
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.rst"))
    listed = set(re.findall(r"^\.\. \w+:: mcp_django\.(\w+)$", text, re.MULTILINE))
    assert listed == {*mcp_django.__all__, "testing"}


def test_every_check_is_listed_and_every_listed_check_exists() -> None:
    listed = set(re.findall(r"`([EIW]\d{3})`", (DOCS / "checks.md").read_text()))
    code = "".join(path.read_text() for path in (ROOT / "mcp_django" / "checks").glob("*.py"))
    numbers = {*re.findall(r'"(\d{3})"', code), *(str(rule[0]) for rule in TOOLKIT_RULES)}
    assert listed == {*re.findall(r'"([EIW]\d{3})"', code), *(f"{kind}{n}" for kind in "EW" for n in numbers)}
    for number, name, *_ in TOOLKIT_RULES:
        assert f"| `E{number}`, `W{number}` | `{name}`" in (DOCS / "checks.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), target
        headings = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}


def test_the_documentation_names_the_dialect_of_schemas() -> None:
    assert "JSON Schema 2020-12" in (DOCS / "functions.md").read_text()


# Pictures


def test_each_picture_is_shown_and_small() -> None:
    shown = set(
        re.findall(r"!\[[^]]+\]\((?:docs/|\.\./)?images/([\w.-]+)\)", "".join(page.read_text() for page in PAGES))
    )
    kept = {path.name for path in (DOCS / "images").iterdir()}
    assert kept == shown
    for path in (DOCS / "images").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < 200_000


def test_the_moving_picture_of_the_readme_is_short_and_small() -> None:
    path = DOCS / "images" / MOVING
    assert f"](docs/images/{MOVING})" in README.read_text().partition("\n## ")[0]
    assert path.stat().st_size < 200_000
    with Image.open(path) as picture:
        assert (picture.width, picture.is_animated) == (1000, True)
        durations = []
        for number in range(picture.n_frames):
            picture.seek(number)
            picture.load()
            durations.append(picture.info["duration"])
    assert 15_000 < sum(durations) < 26_000


def test_the_two_lines_that_the_readme_begins_with_get_the_demo(tmp_path: Path) -> None:
    clone, demo = blocks_of(README)[0].text.strip().splitlines()
    if not (ROOT / ".git").exists():
        pytest.skip("it is a source distribution, which nobody clones")
    command = clone.removeprefix("$ ").replace("REPOSITORY", shlex.quote(ROOT.as_uri()), 1)
    # What the demo installs and serves takes a minute: it is only said.
    command += f"\n{demo.removeprefix('$ ').replace('make', 'make --dry-run')}"
    # Nobody types it within another make, as these tests run.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["sh", "-ec", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(".venv-demo/bin/python manage.py demo")
    assert (tmp_path / "django-mcp-orm" / "example_project" / "shop" / "management" / "commands" / "demo.py").exists()
