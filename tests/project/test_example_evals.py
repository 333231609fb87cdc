"""The evals over the example shop: their bars, and that they can be missed."""

import copy
import json
from dataclasses import replace

import pytest
from django.apps import apps
from django.db import connection

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from benchmarks.tokens import has_tokenizer
from evals import report, surface
from evals.measures import answerability, ask, runnable
from evals.questions import Question, filled, plain, questions, same, table
from evals.shop import Endpoint
from evals.trials import digests
from evals.writes import writes
from tests.e2e.conftest import missing

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shop")]
CLASSES = "totals trends shares top absence existence related durations history text".split()
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


@pytest.fixture(scope="module")
def measures(shop):
    if not has_tokenizer():
        missing("the tokenizer is not installed: make tests/node_modules/.installed")
    return {"answerability": answerability(Endpoint()), "writes": writes(Endpoint()), "surface": surface.bounds()}


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


def test_several_rows_are_written_in_one_call_with_one_confirmation_at_most(measures) -> None:
    jobs = measures["writes"]["jobs"]
    assert jobs["prices"]["at_once"] | {"tokens": 0} == {"calls": 1, "confirmations": 0, "tokens": 0}
    assert jobs["merge"]["at_once"] | {"tokens": 0} == {"calls": 2, "confirmations": 1, "tokens": 0}
    for job in jobs.values():
        assert job["at_once"]["tokens"] < job["in_steps"]["tokens"]
        assert job["at_once"]["calls"] < job["in_steps"]["calls"]
    assert all(report.reached(measures, what) for what, (part, *_) in report.BARS.items() if part == "writes")


def test_what_measures_of_writes_write_is_undone() -> None:
    before = digests()
    writes(Endpoint())
    assert digests() == before


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
