"""The exact versions of the test environments: what `make lock` writes to `requirements/`, as constraints for pip.

`django5.txt` and `django6.txt` have the newest versions that `pyproject.toml` allows. `lowest.txt` is the first of
them, with each dependency of the package at its lowest version.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
PYPROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: Mapping[str, Any] = PYPROJECT["project"]
# The extras whose lowest versions are tested.
RUNTIME = ("daphne", "uvicorn", "redis")
HEAD = "# Written by `make lock`."


def name_of(requirement: str) -> str:
    """Return the name of a requirement as the index has it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def lowest() -> dict[str, str]:
    """Return the lowest version of each dependency of the package, and of its extras that are for projects."""
    extras = PROJECT["optional-dependencies"]
    found = [*PROJECT["dependencies"], *(item for extra in RUNTIME for item in extras[extra])]
    return {name_of(item): re.findall(r">=([\w.]+)", item)[0] for item in found}


def read(path: Path) -> dict[str, str]:
    """Return the versions that a file of constraints names.

    Raises:
        ValueError: a line is no name with a version; it could be a path or a URL.
    """
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    if wrong := [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", line)]:
        raise ValueError(f"{path.name}: {wrong[0]}")
    return dict(line.split("==") for line in lines)


def write(path: Path, versions: Mapping[str, str]) -> None:
    lines = [HEAD, *(f"{name}=={versions[name]}" for name in sorted(versions))]
    path.write_text("".join(f"{line}\n" for line in lines))


def resolve(*requirements: str) -> Iterator[tuple[str, str]]:
    """Ask pip what it would install into an empty environment, and yield names and versions."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*command, *requirements], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    for item in json.loads(done.stdout)["install"]:
        yield name_of(item["metadata"]["name"]), item["metadata"]["version"]


def main(file: str, *requirements: str) -> None:
    """Write one of the files. It is run by a bare interpreter of the version that the environment has."""
    if requirements:
        found = dict(resolve(*requirements))
        del found[name_of(PROJECT["name"])]
    else:
        found = read(REQUIREMENTS / "django5.txt") | lowest()
    write(REQUIREMENTS / file, found)


if __name__ == "__main__":
    main(*sys.argv[1:])
