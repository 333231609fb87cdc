"""Whoever searches the documentation finds the page that helps, and no records of decisions about the code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.documentation import DOCS

pytestmark = [pytest.mark.one_django, pytest.mark.walk]


@pytest.fixture(scope="module")
def index(built_docs: Path) -> Mapping[str, Any]:
    """The index that the search page of the built documentation loads."""
    text = (built_docs / "searchindex.js").read_text()
    found: Mapping[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return found


def pages(index: Mapping[str, Any], word: str) -> set[str]:
    """Return the pages that have a word, in its stem as the index keeps it."""
    numbers = [index["terms"].get(word, []), index["titleterms"].get(word, [])]
    flat = [number for given in numbers for number in (given if isinstance(given, list) else [given])]
    return {index["docnames"][number] for number in flat}


def test_words_that_people_search_for_are_found(index: Mapping[str, Any]) -> None:
    assert "tenants" in pages(index, "multi") & pages(index, "tenant")
    assert "cookbook" in pages(index, "soft") & pages(index, "delet")
    assert "row-level-security" in pages(index, "row") & pages(index, "level")
    assert "actions" in pages(index, "button") & pages(index, "page")
    # The search drops numbers that are words of their own, but not entries of the index.
    for number in ("400", "401", "403", "404", "405", "429", "500"):
        assert index["docnames"][index["indexentries"][number][0][0]] == "troubleshooting"


def test_records_of_decisions_are_not_among_the_results(index: Mapping[str, Any]) -> None:
    words = {*index["terms"], *index["titleterms"]}
    assert not [page for word in words for page in pages(index, word) if page.startswith("decisions/")]


def test_the_front_page_has_a_picture_an_install_line_and_code() -> None:
    text = (DOCS / "index.md").read_text().partition(":::{toctree}")[0]
    assert "](images/" in text
    assert "$ python -m pip install" in text
    assert "```python" in text
