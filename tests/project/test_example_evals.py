"""The evals over the example shop: their bars, and that they can be missed."""

import copy
import json
import re
from dataclasses import replace

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection, transaction
from django.test import override_settings
from jsonschema import Draft202012Validator

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from benchmarks.tokens import has_tokenizer
from evals import report, surface
from evals.measures import answerability, ask, finding, recovery, runnable, shown
from evals.questions import Question, filled, plain, questions, same, table
from evals.recovery import attempt, mutations, values_of
from evals.shop import Endpoint, fill, quiet
from tests.e2e.conftest import missing

pytestmark = pytest.mark.django_db
CLASSES = "totals trends shares top absence existence related durations history text".split()
MUTATIONS = 12
# Of SQLite's machine, in one call: some fifty for each row of the tables. Most calls take less than a tenth.
MAX_STEPS = 500_000
STEPS = 1_000
# Orders by their lines, of which callers may not see all.
OF_RELATED = {"model": "shop.order", "fields": ["number"], "limit": 200, "count": True}
ASKED = (
    {"lines": {"some": {"product.name": "Ash Casserole"}}},
    {"lines": {"none": {"product.name": "Ash Casserole"}}},
    {"lines": {"every": {"quantity__lt": 4}}},
    {"lines": {"count__gte": 5}},
    {"or": [{"lines.product.active": False}, {"lines.order.status": "paid"}]},
    {"customer.orders.lines.product.suppliers.country.name": "Japan"},
    {"not": {"customer": {"some": {"orders": {"some": {"lines": {"some": {"quantity__gt": 3}}}}}}}},
)
LARGE = {"tool": "query_records", "arguments": {"model": "shop.order", "filters": {"total__gt": 100}, "limit": 5}}


@pytest.fixture(scope="module", autouse=True)
def shop(django_db_setup, django_db_blocker):
    """The data of the evals, loaded once and rolled back after the last test."""
    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        fill()
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def measures(shop):
    if not has_tokenizer():
        missing("the tokenizer is not installed: make tests/node_modules/.installed")
    return {"answerability": answerability(Endpoint()), "surface": surface.tokens()}


def question(name) -> Question:
    return next(one for one in questions() if one.id == name)


def test_there_are_twelve_questions_of_each_class_in_four_wordings() -> None:
    found = questions()
    assert [one.id for one in found] == [f"{kind}-{number}" for kind in CLASSES for number in range(1, 13)]
    wordings = [wording for one in found for wording in (one.ask, *one.also)]
    assert len(wordings) == len({*wordings}) == 4 * 120


def test_every_question_is_answered_with_the_values_of_the_orm(measures) -> None:
    answers = measures["answerability"]
    assert not answers["faults"]
    assert answers["questions"] == 120
    assert all(report.reached(measures, what) for what, (part, *_) in report.BARS.items() if part == "answerability")


@pytest.mark.skipif(connection.vendor != "sqlite", reason="counts the steps of SQLite's virtual machine")
def test_no_call_does_more_work_than_its_rows_need() -> None:
    """What goes through a table again for each row of another one takes millions of steps."""
    endpoint, steps = Endpoint(), 0

    def count() -> int:
        nonlocal steps
        steps += STEPS
        return 0

    every = [(one.id, call) for one in questions() for call in runnable(endpoint, one)]
    every += [
        (str(filters), {"tool": "query_records", "arguments": {**OF_RELATED, "filters": filters}}) for filters in ASKED
    ]
    connection.connection.set_progress_handler(count, STEPS)
    try:
        for name, call in every:
            steps = 0
            assert "error" not in endpoint.response(call["tool"], call["arguments"])
            assert steps <= MAX_STEPS, (name, call, steps)
    finally:
        connection.connection.set_progress_handler(None, 0)


def test_no_reference_is_empty() -> None:
    """An empty answer is right too easily."""
    for one in questions():
        expected = one.expected()
        assert expected, one.id
        assert expected != [[None]], one.id
        assert expected != [[0.0]], one.id


def test_a_wrong_reference_and_a_refused_call_are_faults() -> None:
    right = question("totals-2")
    wrong = replace(right, orm="Order.objects.count() + 1")
    assert ask(Endpoint(), right).fault == ""
    assert ask(Endpoint(), wrong).fault == "the values are not those of the ORM"
    refused = replace(right, calls=(("query_records", {"model": "shop.order", "filters": {"colour": "red"}}),))
    assert "colour" in ask(Endpoint(), refused).fault


def test_wrong_calls_are_put_right_by_what_their_errors_say() -> None:
    found = recovery(Endpoint())
    assert len(found["kinds"]) == MUTATIONS
    assert all(one["calls"] >= 10 for one in found["kinds"].values())
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


def test_what_clients_are_shown_does_not_grow(measures) -> None:
    assert [*measures["surface"]] == [*surface.bounds()] == [*surface.ROLES]
    for role, tokens in measures["surface"].items():
        assert tokens <= surface.bounds()[role]
        # A bound that is far away says nothing.
        assert tokens * surface.GROWTH**2 >= surface.bounds()[role]


def test_the_page_says_which_bars_are_missed(measures) -> None:
    every = {
        **measures,
        "recovery": {"right": 0.94, "kinds": {"dots": {"calls": 50, "right": 47}}},
        "finding": {"found": 0.96, "wordings": 360, "missed": {"totals-1": ["What?"]}},
    }
    text = report.page(every)
    assert "| Wrong calls that the second try puts right | 94.0% | 95.0% | MISSED |" in text
    assert text.count("| reached |") == len(report.BARS) - 1
    assert "- totals-1: What?" in text
    worse = copy.deepcopy(every)
    worse["answerability"]["most_tokens"] = 5_001
    assert not report.reached(worse, "Tokens of a question, most")
    assert json.loads(json.dumps(every)) == every


def test_values_are_compared_as_both_sides_write_them() -> None:
    assert table({"a": 1, "b": "2.50"}) == [[1.0, 2.5]]
    assert plain(["JP", "Japan"]) == "Japan"
    assert same([["b", 1.0], ["a", 2.0]], [["a", 2.0000001], ["b", 1.0]])
    assert not same([["b", 1.0], ["a", 2.0]], [["a", 2.0], ["b", 1.0]], ordered=True)
    assert not same([["a", 2.0]], [["a", 2.1]])
    assert not same([["a"]], [["a"], ["a"]])
    assert not same([[None]], [[0.0]])
    assert not same([["a", 1.0]], [["a"]])


def test_arguments_refer_to_earlier_answers() -> None:
    answers = [{"columns": ["id", "customer"], "rows": [[1, ["x", "X"]], [2, None]]}]
    assert filled({"a": ["$1.id", "$1.customer.0", "plain"]}, answers) == {"a": [[1, 2], "x", "plain"]}
    assert filled("@year", [])[4:] == "-01-01"
