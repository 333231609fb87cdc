"""The exact versions in `requirements/` are such as `pyproject.toml` allows, and the lowest are the lowest."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import lock

pytestmark = pytest.mark.one_django

LOCKED = ("django5.txt", "django6.txt")
EXTRAS = lock.PROJECT["optional-dependencies"]
GROUPS = lock.PYPROJECT["dependency-groups"]


def asked(*extras: str) -> list[Requirement]:
    """What the package needs, with these extras and groups."""
    found = [*lock.PROJECT["dependencies"], *(item for extra in extras for item in (EXTRAS | GROUPS)[extra])]
    return [Requirement(item) for item in found]


@pytest.mark.parametrize("file", [*LOCKED, "lowest.txt"])
def test_each_version_is_one_that_pyproject_allows(file: str) -> None:
    versions = lock.read(lock.REQUIREMENTS / file)
    extras = ["dev", "example", "packages", "telemetry", "prometheus", "xlsx"] + (
        ["docs", "packages-django5"] if file != "django6.txt" else []
    )
    for requirement in asked(*extras):
        assert requirement.specifier.contains(versions[lock.name_of(requirement.name)]), f"{requirement}: make lock"


@pytest.mark.parametrize(("file", "series"), [("django5.txt", "5.2."), ("django6.txt", "6."), ("lowest.txt", "5.2.")])
def test_each_file_is_of_its_django(file: str, series: str) -> None:
    assert lock.read(lock.REQUIREMENTS / file)["django"].startswith(series)


def test_what_is_for_developers_is_not_published() -> None:
    assert set(EXTRAS) == {"daphne", "uvicorn", "redis", "telemetry", "prometheus", "xlsx"}


def test_the_lowest_versions_are_the_bounds_of_pyproject() -> None:
    versions, newest = (lock.read(lock.REQUIREMENTS / file) for file in ("lowest.txt", "django5.txt"))
    bounds = {lock.name_of(item.name): item.specifier for item in asked(*lock.RUNTIME)}
    assert lock.lowest().keys() == bounds.keys()
    for name, specifier in bounds.items():
        assert f">={versions[name]}" in str(specifier).split(","), f"{name}: make lock"
    assert versions == newest | {name: versions[name] for name in bounds}


@pytest.mark.parametrize(
    "line", ["x @ file:///srv/x.whl", "--index-url https://pypi.example/simple", "x>=1", "x==1 # y"]
)
def test_a_line_is_a_name_and_a_version_alone(line: str, tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text(f"{lock.HEAD}\n{line}\n")
    with pytest.raises(ValueError, match=r"^some\.txt: "):
        lock.read(path)


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    lock.write(path, {"b": "2", "a-c": "1.0b1"})
    assert path.read_text() == f"{lock.HEAD}\na-c==1.0b1\nb==2\n"
    assert lock.read(path) == {"b": "2", "a-c": "1.0b1"}
