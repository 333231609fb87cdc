"""What a model reads of the example shop: the tools, their texts and their errors, and how far these lead it."""

import json
import re

import pytest
from django.apps import apps
from django.conf import settings
from django.test import override_settings
from jsonschema import Draft202012Validator

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from benchmarks.tokens import has_tokenizer
from evals import report, surface
from evals.measures import finding, recovery, shown
from evals.questions import questions
from evals.recovery import attempt, mutations, values_of
from evals.shop import Endpoint
from tests.cases import SOME, some
from tests.e2e.conftest import missing

# No Django writes them.
pytestmark = [pytest.mark.one_django, pytest.mark.django_db, pytest.mark.usefixtures("shop")]
MUTATIONS = 12
LARGE = {"tool": "query_records", "arguments": {"model": "shop.order", "filters": {"total__gt": 100}, "limit": 5}}


def test_wrong_calls_are_put_right_by_what_their_errors_say() -> None:
    found = recovery(Endpoint(), some(questions(), 5))
    assert len(found["kinds"]) == MUTATIONS
    assert all(one["calls"] >= (3 if SOME else 10) for one in found["kinds"].values())
    assert report.reached({"recovery": found}, "Wrong calls that the second try puts right"), found["failed"]
    # What is missing cannot always be told; all else is mended nearly always.
    others = [failure for failure in found["failed"] if failure["kind"] != "missing required"]
    assert len(others) <= 0.02 * sum(one["calls"] for one in found["kinds"].values()), others


def test_what_the_error_does_not_mend_is_not_counted_as_right() -> None:
    send = Endpoint().response
    golden = values_of(send, LARGE)
    assert attempt(send, golden, {**LARGE, "tool": "query_record"}) is None
    for wrong in (
        {**LARGE, "tool": "nothing"},
        {"tool": "query_records", "arguments": {"model": "shop.order", "filters": {"zzzz": 5}}},
        # Understood at once, with other values.
        {"tool": "query_records", "arguments": {"model": "shop.order", "filters": {"total__gt": 200}, "limit": 5}},
    ):
        assert attempt(send, golden, wrong)
    with pytest.raises(ValueError, match="is refused"):
        values_of(send, {"tool": "query_records", "arguments": {"model": "nothing"}})


def test_the_wrong_calls_of_a_call_are_always_the_same() -> None:
    before = json.dumps(LARGE)
    assert list(mutations(LARGE)) == list(mutations(LARGE))
    assert {way for way, _ in mutations(LARGE)} >= {"plural model", "missing required", "unknown tool", "SQL operator"}
    assert json.dumps(LARGE) == before


def words_of(value, place=""):
    """Yield the words of the language that a part of a call is made of; names and values of its own are none."""
    if place == "group_by":
        yield from (item.partition(":")[2] for item in value if ":" in item and not item[-1].isdecimal())
    elif isinstance(value, list):
        for item in value:
            yield from words_of(item, place)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from (word for word in (name, *name.split("__")[1:]) if word in LANGUAGE)
            yield from [inner] if name == "function" else words_of(inner, place)
    elif isinstance(value, str) and place == "aggregates":
        yield from [value.partition(":")[0]] * (value.partition(":")[0] in LANGUAGE)


LANGUAGE = {
    *("or", "not", "some", "none", "every", "count", "where", "field", "plus", "minus", "as", "unit", "order"),
    *("count_distinct", "sum", "avg", "min", "max", "median", "percentile", "stddev", "first", "last"),
    *("ratio", "difference", "percent_of_total", "change", "in", "isnull", "gt", "gte", "lt", "lte"),
    *("contains", "icontains", "startswith", "year", "month", "range", "iexact", "endswith", "istartswith"),
}


def test_questions_are_asked_with_nothing_but_what_the_texts_of_the_tools_say() -> None:
    """What a model can know of the language is what it reads: the tools, and the server's instructions."""
    endpoint = Endpoint()
    tools = {tool["name"]: tool for tool in shown(endpoint.tools())}
    told = {name: {*re.findall("[a-z_]+", json.dumps(tool).replace("__", " "))} for name, tool in tools.items()}
    told["aggregate_records"] |= told["query_records"]
    used = set()
    for one in questions():
        for tool, arguments in one.calls:
            described = tools[tool]["inputSchema"]["properties"]
            assert arguments.keys() <= described.keys()
            words = {word for name, value in arguments.items() for word in words_of(value, name)}
            assert words <= told[tool], one.id
            used |= words
            assert all(described[name].get("description") for name in arguments.keys() - {"model", "pk"})
    assert used >= {"none", "every", "count", "field", "percent_of_total", "change", "unit", "plus", "hour_of_day"}


def test_every_call_of_the_text_that_explains_asking_runs() -> None:
    endpoint = Endpoint()
    [contents] = endpoint.client.request("resources/read", uri="django://asking")["contents"]
    calls = re.findall(r"^(\w+_records) ({.+})$", contents["text"], re.MULTILINE)
    assert len(calls) == 5
    for tool, arguments in calls:
        result = endpoint.answer(tool, json.loads(arguments))
        assert not result.get("isError"), result


@pytest.mark.parametrize("mode", ["full", "plain"])
def test_every_example_of_every_tool_fits_the_schema_of_the_tool(mode) -> None:
    with override_settings(MCP_DJANGO=settings.MCP_DJANGO | {"SCHEMAS": mode}):
        endpoint = Endpoint()
        tools = {tool["name"]: tool for tool in endpoint.tools()}
        texts = (tool["description"].partition("Example: ")[2] for tool in tools.values())
        given = [("query_records", json.loads(text)) for text in texts if text]
        for label in endpoint.client.call("list_models").structured["rows"]:
            described = endpoint.client.call("describe_model", model=label[0]).structured
            given += [(example["tool"], example["arguments"]) for example in described["examples"]]
        assert len(given) > 20
        for tool, arguments in given:
            Draft202012Validator(tools[tool]["inputSchema"]).validate(arguments)
            assert not endpoint.answer(tool, arguments).get("isError"), arguments


def test_the_model_of_a_question_is_found_by_its_words() -> None:
    found = finding(Endpoint())
    assert found["wordings"] == 3 * 120
    what = "Wordings whose model `list_models` names among its first three"
    assert report.reached({"finding": found}, what), found["missed"]


@pytest.mark.parametrize("role", surface.ROLES)
def test_what_clients_are_shown_is_what_the_snapshot_says(role) -> None:
    """`python -m evals surface` writes the snapshots anew: review what has changed."""
    assert surface.written(role) == surface.kept(role)


def test_what_clients_are_shown_does_not_grow() -> None:
    if not has_tokenizer():
        missing("the tokenizer is not installed: make tests/node_modules/.installed")
    counted = surface.tokens()
    assert [*counted] == [*surface.bounds()] == [*surface.ROLES]
    for role, tokens in counted.items():
        assert tokens <= surface.bounds()[role]
        # A bound that is far away says nothing.
        assert tokens * surface.GROWTH**2 >= surface.bounds()[role]
