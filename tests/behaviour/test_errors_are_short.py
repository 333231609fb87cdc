"""Errors are short: each form of a wrong call, also with long inputs and with many models and fields to name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_django import ToolError
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.refused_calls import RefusedCall
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_book, make_superuser
from tests.library import MODELS, make_library, site_with
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

LIST, DESCRIBE, QUERY, GET, AGGREGATE = ListModels(), DescribeModel(), QueryRecords(), GetRecord(), AggregateRecords()
CREATE, UPDATE, DELETE = CreateRecord(), UpdateRecord(), DeleteRecord()
MAX_TOKENS = 300
# English text and JSON have some four characters in a token; identifiers fewer.
CHARS_PER_TOKEN = 3.5
LONG = "x" * 5_000
PHRASE = "titel " * 900
TEXTS = ("titel", "Title", "zzzz", LONG, PHRASE, "ünï" * 500, "a__b." * 400, "'\"\\" * 300, "titel__" * 300)


def wrong_calls() -> Iterator[tuple[Tool, dict[str, Any]]]:
    """Yield a call for each form of error, with short texts and with long ones in it."""
    for text in TEXTS:
        for tool in (QUERY, GET, AGGREGATE, DESCRIBE, CREATE, UPDATE, DELETE):
            yield tool, {"model": text, "values": {}}
            yield tool, {"model": "testapp.book", text: 1}
            yield tool, {text: text}
        book: dict[str, Any] = {"model": "testapp.book"}
        yield LIST, {text: text}
        for value in (
            [text],
            text,
            [text] * 300,
            {text: text},
            {"or": [{text: 1}] * 30},
            {"title__" + text: 1},
            {"pages": text},
            {"pages": [text] * 99},
            {"status": text},
            {"status": {text: text}},
            {"author": text},
            {"author." + text: text},
            {"created": text},
            {"title": {"field": text}},
            {"tags": {"some": {text: 1}}},
            {"tags": {"count__gte": text}},
            f"pages > '{text}'",
            ["pages", ">", text],
            json.dumps({text: text}),
        ):
            yield QUERY, {**book, "filters": value}
            yield AGGREGATE, {**book, "aggregates": [{"function": "count", "where": value}]}
            for name in ("fields", "ordering", "limit", "cursor", "count", "search"):
                yield QUERY, {**book, name: value}
            for name in ("aggregates", "group_by", "having", "ordering", "top", "per", "fill", "limit"):
                yield AGGREGATE, {**book, "group_by": ["status"], **{name: value}}
        yield AGGREGATE, {**book, "aggregates": [f"sum:{text}", f"{text}:pages"], "group_by": [f"created:{text}"]}
        yield GET, {**book, "pk": text}
        yield GET, {**book, "pk": "1", "related": [text], "fields": [text]}
        yield UPDATE, {**book, "pk": text, "values": {"title": "x"}}
        yield UPDATE, {**book, "pk": "KEY", "values": {text: text}}
        yield UPDATE, {**book, "pk": "KEY", "values": {"status": text, "pages": text, "author": text}}
        yield CREATE, {**book, "values": {f"{text[:40]}{number}": text for number in range(50)}}
        yield DELETE, {**book, "pks": [text] * 50}
        yield DELETE, {**book, "filters": {text: text}}


@pytest.mark.django_db
def test_no_error_is_longer_than_three_hundred_tokens() -> None:
    make_library(3)
    request = request_of(make_superuser(), site_with(*MODELS))
    key, seen, wrong = make_book().pk, 0, []
    for tool, arguments in wrong_calls():
        if arguments.get("pk") == "KEY":
            arguments["pk"] = key
        try:
            tool.call(request, dict(arguments))
        except ToolError as error:
            wire = RefusedCall(request, tool, arguments, error).result()
            seen += 1
            text = wire["content"][0]["text"]
            if len(text) > MAX_TOKENS * CHARS_PER_TOKEN:
                wrong.append((tool.name, json.dumps(arguments)[:100], len(text)))
            assert ("\nnext: {" in text) == text.rpartition("\n")[2].startswith("next: {")
    assert seen > 2_000
    assert not wrong, wrong[:10]
