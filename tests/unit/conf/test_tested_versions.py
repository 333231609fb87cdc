"""The releases of Django that are named as tested are those of the package's classifiers."""

import re
import tomllib
from pathlib import Path

import django
import pytest

from mcp_django.conf.tested_versions import TESTED_DJANGO, is_newer_than_tested

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def test_the_tested_releases_of_django_are_those_of_the_classifiers() -> None:
    found = re.findall(r"Framework :: Django :: (\d+)\.(\d+)", "\n".join(PROJECT["classifiers"]))
    assert [(int(major), int(minor)) for major, minor in found] == sorted(TESTED_DJANGO) == [*TESTED_DJANGO]


def test_the_installed_django_is_one_of_them() -> None:
    assert django.VERSION[:2] in TESTED_DJANGO


@pytest.mark.parametrize(("version", "expected"), [((5, 2, 9), False), ((6, 1, 99), False), ((6, 2, 0), True)])
def test_a_later_minor_release_is_newer(version: tuple[int, ...], expected: bool, monkeypatch) -> None:
    monkeypatch.setattr(django, "VERSION", version)
    assert is_newer_than_tested() is expected
