"""The example project, prepared once and served from a copy of its own."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.database import Database
from tests.e2e.servers import ROOT, Server, prepare_example, run_example

NODE_MODULES = ROOT / "tests" / "node_modules"


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the example project's database and media, never served itself.

    The processes of a run share it: the first one makes it.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return prepare_example(tmp_path_factory.mktemp("prepared"))
    directory = tmp_path_factory.getbasetemp().parent / "prepared"
    directory.mkdir(exist_ok=True)
    with (directory.parent / "prepared.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if not lock.read():
            prepare_example(directory)
            lock.write("done")
    return directory


@pytest.fixture(scope="module")
def example(
    request: pytest.FixtureRequest, prepared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The example project as `asgi.py` serves it, under the `SERVER` that the test module names, or uvicorn."""
    program = getattr(request.module, "SERVER", "uvicorn")
    directory = tmp_path_factory.mktemp("example")
    with run_example(prepared, directory, program, "example_project.asgi:application") as server:
        yield server


@pytest.fixture(scope="module")
def database(example: Server) -> Database:
    """What the server has stored."""
    return Database(example.database)


@pytest.fixture(scope="session")
def node() -> str:
    """The Node that the official TypeScript programs run on; `make tests/node_modules/.installed` installs it."""
    binary = NODE_MODULES / "node" / "bin" / "node"
    if not binary.exists():
        missing(f"{binary} is not installed")
    return str(binary)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser that pages are looked at with; `make chromium` installs it where that is possible."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    binary = os.environ.get("CHROMIUM") or next(filter(None, found), None)
    if binary is None:
        missing("there is no Chromium: install it, or name one with CHROMIUM=...")
    return str(binary)


def missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
