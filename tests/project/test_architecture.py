"""The shape of the code: which room imports which, how long things may get, what is public, what has its test."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests import gate

pytestmark = pytest.mark.one_django

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mcp_django"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)

# The rooms of the package, the lowest floor first: each imports from its own floor and those below, types included.
FLOORS = """
protocol
conf problems exceptions scopes signals models
runtime
schema
context signin
operating
functions
exposures
orm
emulation
differences
approvals
exports
tools
resources
rest
sites routing decorators
oauth
subscriptions
server
tasks
transports
templatetags
console
__init__ admin apps asgi checks testing
management
tryout __main__
"""
RANKS = {room: rank for rank, rooms in enumerate(FLOORS.strip().splitlines()) for room in rooms.split()}

# As in Django's admin, a site knows its URLs.
UPWARD_IMPORT = ("sites.py", "MCPSite.get_urls")

# asgiref comes with Django, oauthlib with django-oauth-toolkit, pydantic with mcp-types, cryptography with jwcrypto.
DEPENDENCIES = set(
    "asgiref channels cryptography django jwcrypto mcp_types oauth2_provider oauthlib orjson pydantic "
    "rest_framework".split()
)
# What comes with an extra, or with the project, and the one module that may import it: nothing else needs it.
EXTRAS = {
    "daphne": "tryout/shop.py",
    "django_tasks": "tasks/django_task.py",
    "opentelemetry": "operating/opentelemetry_spans.py",
    "prometheus_client": "operating/metrics.py",
    "xlsxwriter": "exports/xlsx_files.py",
}
# pydantic is what mcp_types is made of: its errors say what is wrong with a message.
PURE_DEPENDENCIES = {"mcp_types", "orjson", "pydantic"}
# I/O, clock and scheduling.
IMPURE_STDLIB = set(
    "asyncio concurrent http io multiprocessing os pathlib queue sched select selectors shutil signal socket "
    "socketserver ssl subprocess tempfile threading time".split()
)

MAX_ROOT_FILES = 15
# What is read of a code object to find out what it does.
BYTECODE = {"co_code", "co_consts", "co_freevars", "co_names", "co_varnames"}
# Ceilings, with room: nobody splits, folds or abbreviates for a number.
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 70

PUBLIC_API = set(
    "AdminExposure ModelExposure MCPSite action approval prompt register register_viewset resource site task tool "
    "embed notify_changed notify_list_changed Ask Roots Sample Declined "
    "AlreadyRegistered NotRegistered ToolError Header Param "
    "Audio EmbeddedResource Image Message ResourceLink Text ToolResult".split()
)

# A directory of one machine, or the address of a package registry.
LOCAL = re.compile(
    r"(?<![\w.:~/$}-])/(?:work|root|home|Users|opt|mnt)/\w"
    r"|\b(?:registry\.npmjs\.org|pypi\.org/simple|files\.pythonhosted\.org)"
)


FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Import:
    """One import statement's target, as an absolute dotted name, and the function or class that it stands in."""

    path: Path
    line: int
    scope: str
    target: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.target}"

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]


class ImportCollector(ast.NodeVisitor):
    """Collects the imports that happen at run time, and with `types` those under `if TYPE_CHECKING:`."""

    def __init__(self, path: Path, *, types: bool = False) -> None:
        self.path, self.types = path, types
        self.package = path.relative_to(ROOT).with_suffix("").parts[:-1]
        self.scopes: list[str] = []
        self.found: list[Import] = []

    def add(self, node: ast.stmt, target: str) -> None:
        self.found.append(Import(self.path, node.lineno, ".".join(self.scopes), target))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self.package[: len(self.package) - node.level + 1] if node.level else ()
        source = ".".join([*base, *([node.module] if node.module else [])])
        for alias in node.names:
            name = f"{source}.{alias.name}"
            self.add(node, name if is_module(name) else source)

    def visit_If(self, node: ast.If) -> None:
        is_skipped = is_type_checking(node.test) and not self.types
        for child in node.orelse if is_skipped else [node.test, *node.body, *node.orelse]:
            self.visit(child)

    def visit_scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scopes.append(node.name)
        self.generic_visit(node)
        self.scopes.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = visit_scope


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).split(".")[-1] == "TYPE_CHECKING"


@cache
def imports_of(path: Path, *, types: bool = False) -> list[Import]:
    collector = ImportCollector(path, types=types)
    collector.visit(parsed(path))
    return collector.found


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def room_of_import(item: Import) -> str:
    """The room that is imported."""
    parts = item.target.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def is_upward(item: Import) -> bool:
    """The one import that leads back up."""
    return (item.path.name, item.scope) == UPWARD_IMPORT


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, FUNCTION):
            yield node


def collect(source: str, name: str = "tools/example.py") -> list[Import]:
    collector = ImportCollector(PACKAGE / name)
    collector.visit(ast.parse(source))
    return collector.found


def test_the_collector_sees_what_it_has_to_see() -> None:
    source = """
from ..conf import settings
from . import base
from .. import exceptions as e, site
import django.db
if TYPE_CHECKING:
    from ..sites import MCPSite
else:
    import json
class A:
    def b(self):
        from ..transports import client_configs
"""
    found = [(item.target, item.scope) for item in collect(source)]
    assert found == [
        ("mcp_django.conf", ""),
        ("mcp_django.tools.base", ""),
        ("mcp_django.exceptions", ""),
        ("mcp_django", ""),
        ("django.db", ""),
        ("json", ""),
        ("mcp_django.transports.client_configs", "A.b"),
    ]


def test_every_module_belongs_to_a_room() -> None:
    unknown = {room_of(path) for path in MODULES} - set(RANKS)
    assert not unknown


def test_rooms_import_only_from_those_below_them() -> None:
    upward = [
        item
        for path in MODULES
        for item in imports_of(path, types=True)
        if item.top == "mcp_django" and RANKS[room_of_import(item)] > RANKS[room_of(path)]
    ]
    forbidden = [item for item in upward if not is_upward(item)]
    assert not forbidden, "\n".join(map(str, forbidden))
    assert len(upward) <= 1, "MCPSite.get_urls() is allowed one upward import"


def test_what_is_imported_of_the_package_is_there() -> None:
    absent = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and node.level
        and node.module
        and not is_module(".".join([*path.relative_to(ROOT).parts[: -node.level], node.module]))
    ]
    assert not absent


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def circles(graph: Mapping[str, AbstractSet[str]]) -> list[set[str]]:
    """Return the sets of modules each of which leads to all of its set, where they are several."""

    def reached_from(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph.get(waiting.pop(), frozenset()) - found
            found |= new
            waiting += new
        return found

    reached = {name: reached_from(name) for name in graph}
    found = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in graph}
    return sorted((set(circle) for circle in found if len(circle) > 1), key=len, reverse=True)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [{"a", "b", "c"}, {"d", "e"}]


def test_no_files_import_each_other_in_a_circle() -> None:
    names = {dotted(path) for path in MODULES}
    graph = {
        dotted(path): names & {item.target for item in imports_of(path, types=True) if not is_upward(item)}
        for path in MODULES
    }
    assert circles(graph) == []


def test_the_package_imports_only_what_it_declares() -> None:
    allowed = DEPENDENCIES | sys.stdlib_module_names | {"mcp_django"}
    foreign = [item for path in MODULES for item in imports_of(path) if item.top not in allowed]
    foreign = [item for item in foreign if PACKAGE / EXTRAS.get(item.top, "none") != item.path]
    assert not foreign, "\n".join(map(str, foreign))


@pytest.mark.parametrize("name", EXTRAS.values())
def test_what_needs_an_extra_is_imported_only_when_it_is_used(name: str) -> None:
    module = dotted(PACKAGE / name)
    eager = [item for path in MODULES for item in imports_of(path) if item.target == module and not item.scope]
    assert not eager, "\n".join(map(str, eager))


def test_the_package_imports_its_own_modules_relatively() -> None:
    absolute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("mcp_django"))
        or (isinstance(node, ast.Import) and any(alias.name.startswith("mcp_django") for alias in node.names))
    ]
    assert not absolute


PROTOCOL = [path for path in MODULES if room_of(path) == "protocol"]


def test_the_protocol_does_no_io_and_knows_no_framework() -> None:
    allowed = (sys.stdlib_module_names - IMPURE_STDLIB) | PURE_DEPENDENCIES | {"mcp_django"}
    impure = [item for path in PROTOCOL for item in imports_of(path) if item.top not in allowed]
    assert PROTOCOL
    assert not impure, "\n".join(map(str, impure))


def test_the_protocol_is_synchronous() -> None:
    asynchronous = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in PROTOCOL
        for node in ast.walk(parsed(path))
        if isinstance(node, asynchronous)
    ]
    assert not found


def test_files_stay_within_their_budget() -> None:
    too_long = {str(path.relative_to(ROOT)): lines(path) for path in MODULES if lines(path) > MAX_FILE_LINES}
    assert not too_long


def test_few_files_lie_at_the_root() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MAX_ROOT_FILES


def test_functions_stay_within_their_budget() -> None:
    too_long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": size
        for path in MODULES
        for node in functions(path)
        if (size := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not too_long


def test_nothing_is_guessed_from_bytecode() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Import) and any(alias.name in ("dis", "opcode") for alias in node.names))
        or (isinstance(node, ast.Attribute) and node.attr in BYTECODE)
    ]
    assert not found


ROOMS = sorted({room_of(path) for path in MODULES if path.name != "__init__.py" and path.parent != PACKAGE})


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_tests(room: str) -> None:
    assert list((ROOT / "tests" / "unit" / room).rglob("test_*.py"))


def test_unit_tests_bear_the_name_of_their_module() -> None:
    """They are in ``test_<module>.py`` and ``test_<module>_<topic>.py``; those of the package conf in one file."""
    unit = ROOT / "tests" / "unit"
    names = {path.relative_to(PACKAGE).with_suffix("") for path in MODULES}
    nameless = [
        str(path.relative_to(ROOT))
        for path in unit.rglob("test_*.py")
        if path != unit / "conf" / "test_settings.py"
        and not any(
            name.parent == path.relative_to(unit).parent and f"{path.stem}_".startswith(f"test_{name.name}_")
            for name in names
        )
    ]
    assert nameless == []


def table_rows(heading: str, page: str = "architecture.md") -> list[list[str]]:
    """Return the cells of the first table below a heading of a page of the documentation."""
    text = (ROOT / "docs" / page).read_text().partition(f"## {heading}\n")[2]
    table = text[text.index("|---") :].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_documentation_names_the_rooms_in_their_order() -> None:
    told = [re.findall(r"`(\w+)`", rooms) for rooms, _ in table_rows("Rooms")]
    assert told == [rooms.split() for rooms in FLOORS.strip().splitlines()]


@pytest.mark.parametrize("kind", gate.EXCEPTIONS)
def test_rows_sql_and_permissions_come_from_the_gate(kind: gate.Kind) -> None:
    """What asks for them elsewhere is listed with its reason in ``tests/gate.py``. Enter a number that has fallen."""
    assert gate.uses_outside()[kind] == gate.listed(kind)


def test_uses_outside_of_the_gate_are_found() -> None:
    source = """
rows = model._base_manager.filter(pk=1)
found = exposure.get_queryset(request)
kept = Session.objects.all()
cursor.execute("SELECT 1")
rows.annotate(x=RawSQL("1", ()))
user.has_perm("shop.view_order") and model_admin.has_change_permission(request)
"""
    found = Counter(gate.uses(ast.parse(source), frozenset({"Session"})))
    assert found == {"rows": 2, "SQL": 2, "permission": 2}


def test_the_documentation_names_the_modules_of_the_gate_in_their_order() -> None:
    told = [re.findall(r"`([\w/]+\.py)`", row[0]) for row in table_rows("The modules", "audit.md")]
    assert [name for names in told for name in names] == list(gate.MODULES)


def test_each_line_of_the_gate_is_run_by_tests() -> None:
    measured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]["include"]
    assert measured == ["mcp_django/protocol/*", *(f"mcp_django/{name}" for name in gate.MODULES)]


def test_the_gate_can_be_read() -> None:
    assert sum(lines(PACKAGE / name) for name in gate.MODULES) <= gate.MAX_LINES


def test_the_public_api_is_deliberate() -> None:
    import mcp_django

    assert set(mcp_django.__all__) == PUBLIC_API
    assert len(mcp_django.__all__) == len(set(mcp_django.__all__))
    assert all(hasattr(mcp_django, name) for name in mcp_django.__all__)


def project_files() -> list[Path]:
    """What is, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone of the repository")
def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1)
        if LOCAL.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ('cd "/' + "work/main", True),
        ("python=/" + "root/x", True),
        ("https://registry." + "npmjs.org/x", True),
        ("https://shop.example/work/plan", False),
        ("example_project/home/index.html", False),
    ],
)
def test_the_search_for_machine_paths_finds_them(text: str, local: bool) -> None:
    assert bool(LOCAL.search(text)) is local


def test_the_lock_file_of_the_node_clients_names_no_host() -> None:
    assert '"resolved"' not in (ROOT / "tests" / "package-lock.json").read_text()
