"""The formats that this server can write."""

import importlib.util
from typing import Any

import pytest

from mcp_django.exceptions import ToolError
from mcp_django.exports import known_formats as formats

pytestmark = pytest.mark.one_django


def test_a_format_is_csv_unless_it_is_named() -> None:
    assert formats.format_named(None) == "csv"
    assert formats.format_named("jsonl") == "jsonl"


@pytest.mark.parametrize("name", ["XLS", 5, ["csv"], "../csv"])
def test_another_format_is_refused_with_those_that_there_are(name: Any) -> None:
    with pytest.raises(ToolError, match="csv, jsonl, xlsx"):
        formats.format_named(name)


def test_without_its_package_there_is_no_xlsx(monkeypatch: Any) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "xlsxwriter" else found(name))
    assert set(formats.known_formats()) == {"csv", "jsonl"}
    with pytest.raises(ToolError, match="needs XlsxWriter"):
        formats.format_named("xlsx")
