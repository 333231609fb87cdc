"""What a language model reads, counted with a public tokenizer."""

import json
import re

import pytest
from django.contrib.admin import site as admin_site

from benchmarks.catalogue import NUMBER, ROWS, catalogue, filled
from benchmarks.report import token_lines
from benchmarks.tokens import TARGETS, answer_text, asking, count_tokens, field_lines, measured
from mcp_django import MCPSite
from mcp_django.orm.access import access_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("node")]


def test_tools_descriptions_and_rows_stay_within_their_tokens() -> None:
    found = measured()
    assert [item["what"] for item in found] == list(TARGETS)
    assert [item["most"] for item in found] == [1_800, 60, 2_500]
    for item in found:
        assert item["most"] / 3 < item["value"] <= item["most"], item
    assert "✗" not in "".join(token_lines(found))


def test_what_is_counted_is_whole() -> None:
    site = catalogue()
    request = asking(site)
    labels = [exposure.label for exposure in access_of(request).exposures]
    assert len(labels) == NUMBER == 50
    described = json.loads(answer_text(request, "describe_model", model=",".join(labels)))
    assert [entry["model"] for entry in described["models"]] == labels
    with filled(site) as label:
        names = [re.sub(r"\W.*", "", field) for field in field_lines(request, label)]
        page = json.loads(answer_text(request, "query_records", model=label, limit=ROWS, fields=names))
    assert (len(page["rows"]), len(page["columns"])) == (50, 13)
    assert "truncated" not in page


def test_the_tokenizer_is_o200k_base() -> None:
    assert count_tokens(["", "hello world", "antidisestablishmentarianism", "数据库"]) == [0, 2, 6, 1]


def test_the_admin_of_the_tests_is_described_in_few_tokens_too() -> None:
    request = asking(MCPSite(admin_site=admin_site))
    labels = [exposure.label for exposure in access_of(request).exposures]
    (tokens,) = count_tokens([answer_text(request, "describe_model", model=",".join(labels))])
    assert tokens <= 80 * len(labels)
