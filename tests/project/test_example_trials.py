"""Models that answer the questions of the evals: scripts behind servers that speak the APIs of the providers."""

import io
import json
import threading
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import transaction

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from evals import model, trials
from evals.model import PROVIDERS, ModelError
from evals.questions import names, questions
from evals.trials import Outcome, Trial, attempt, chosen, digests, final_values, lines, report, tasks, tells
from evals.writes import JOBS
from example_project.shop.models import Customer, Order, Product
from mcp_django.models import ApprovalRule

pytestmark = [pytest.mark.one_django, pytest.mark.django_db, pytest.mark.usefixtures("shop")]
# Fewer than the evals have, as each trial reads all of them.
SHOP_ORDERS = 200
KEY = "key-that-nobody-may-see"
ORDERS = questions()[1]
USAGE = {"input_tokens": 90, "output_tokens": 10, "prompt_tokens": 90, "completion_tokens": 10}
PHONE = {"model": "shop.customer", "pk": "5", "values": {"phone": "+49 30 1234567"}}


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setattr(model, "PAUSE", 0.01)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)


def said(values):
    return f"Here it is.\n```json\n{json.dumps({'answer': values})}\n```"


class Script:
    """Turns, each a text or a list of calls (tool, arguments); the last one is repeated. Statuses come before them.

    A turn may be a function of the last answer of a tool.
    """

    def __init__(self, turns, statuses=()):
        self.turns, self.statuses, self.requests = list(turns), list(statuses), []
        self.location = ""
        # After so many requests it refuses.
        self.after = 10_000

    def turn(self):
        return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]


@contextmanager
def serving(script):
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.requests.append((self.path, dict(self.headers), body))
            if len(script.requests) > script.after:
                script.statuses.append(401)
            if script.statuses:
                return self.reply(script.statuses.pop(0), {"error": {"message": f"no: {KEY}"}})
            turn = script.turn()
            if callable(turn):
                turn = turn(json.loads(body["messages"][-1]["content"][-1]["content"]))
            return self.reply(200, (anthropic if self.path == "/v1/messages" else openai)(turn))

        def reply(self, status, found):
            data = json.dumps(found).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", script.location)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def anthropic(turn):
    if isinstance(turn, str):
        return {"content": [{"type": "text", "text": turn}], "usage": USAGE}
    uses = [{"type": "tool_use", "id": f"c{n}", "name": tool, "input": given} for n, (tool, given) in enumerate(turn)]
    return {"content": uses, "usage": USAGE}


def openai(turn):
    if isinstance(turn, str):
        return {"choices": [{"message": {"role": "assistant", "content": turn}}], "usage": USAGE}
    calls = [
        {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": tool, "arguments": given if isinstance(given, str) else json.dumps(given)},
        }
        for number, (tool, given) in enumerate(turn)
    ]
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}], "usage": USAGE}


def tried(script, asked, provider="anthropic"):
    with serving(script) as url:
        return attempt(asked, lambda system, tools: PROVIDERS[provider]("m", system, tools, url))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_that_makes_the_golden_calls_passes(provider) -> None:
    script = Script([list(ORDERS.calls), said(ORDERS.expected())])
    trial = tried(script, ORDERS, provider)
    assert trial == Trial(passed=True, why="", calls=1, read=180, written=20)
    _, headers, body = script.requests[-1]
    assert KEY in json.dumps(headers)
    assert KEY not in json.dumps(body)
    # It was given the answer of the endpoint, the instructions and the tools.
    assert "count" in json.dumps(body["messages"])
    assert "Today is" in json.dumps(script.requests[0][2])
    assert "aggregate_records" in json.dumps(body["tools"])


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([said([[1]])], "other values"),
        (["Many."], "no values at the end"),
        ([[("update_record", PHONE)], said([[1]])], "changed Customer"),
        ([[("list_models", {})]], f"no answer after {trials.MAX_TURNS} turns"),
    ],
)
def test_what_a_model_does_wrong_is_said(turns, why) -> None:
    trial = tried(Script(turns), ORDERS)
    assert (trial.passed, trial.why) == (False, why)


def test_every_trial_is_undone() -> None:
    before = digests()
    task = tasks()[0]
    assert tried(Script([[("update_record", PHONE)], said([[True]])]), task).passed
    assert digests() == before
    assert Customer.objects.get(pk=5).phone != PHONE["values"]["phone"]


def test_a_task_passes_only_if_it_is_done_and_nothing_else() -> None:
    task = tasks()[0]
    assert tried(Script([said([[True]])]), task).why == "the database is not as it should be"
    also = ("update_record", {"model": "shop.supplier", "pk": "1", "values": {"email": "x@y.example"}})
    assert tried(Script([[("update_record", PHONE), also], said([[True]])]), task).why == "changed Supplier"


def confirmed(tool, **arguments):
    """Return the turns of a model that calls a tool, and again with the token of its preview."""
    return [
        [(tool, arguments)],
        lambda preview: [(tool, {**arguments, "confirm_token": preview["confirm_token"]})],
    ]


OF_MANY_ROWS = {
    "tasks-9": [[*JOBS["prices"].at_once]],
    "tasks-10": confirmed(
        "update_record",
        model="shop.product",
        filters={"category.name": "Knives"},
        values={"price": {"field": "price*1.05", "round": "0.10"}},
    ),
    "tasks-11": confirmed("write_records", **JOBS["merge"].at_once[0][1]),
    "tasks-12": [
        *confirmed("update_record", model="shop.order", filters={"status": "pending"}, values={"status": "cancelled"}),
        lambda written: [("undo_change", {"change": written["change"]})],
    ],
}


@pytest.mark.parametrize("name", OF_MANY_ROWS)
def test_a_task_of_many_rows_takes_one_call_and_a_yes(name) -> None:
    [task] = [task for task in tasks() if task.id == name]
    trial = tried(Script([*OF_MANY_ROWS[name], said([[True]])]), task)
    assert trial.passed, trial.why
    assert trial.calls == len(OF_MANY_ROWS[name])


def refund(of, amount, reason):
    """Return a turn that refunds a part of the order that a task is about."""
    [task] = [task for task in tasks() if task.id == of]
    return [("refund_shop_order", {"pks": [eval(task.before, names())], "form": {"reason": reason, "amount": amount}})]


def test_a_refund_that_waits_is_asked_for_once_and_the_user_is_told_for_whom() -> None:
    [task] = [task for task in tasks() if task.id == "tasks-13"]
    Order.objects.filter(pk=Order.objects.filter(total__gt=200).first().pk).update(status="delivered")
    found = []

    def tell(answer):
        found.append(answer["change"])
        return said([[answer["change"], answer["message"].split("'")[1]]])

    asking = refund(task.id, "120", "late")
    trial = tried(Script([asking, asking, tell]), task)
    assert trial.passed, trial.why
    assert found
    assert not ApprovalRule.objects.exists()
    for turns in (
        [asking, said([[True]])],
        [asking, lambda answer: said([[answer["change"], "nobody"]])],
        # The same request may not be asked for in two ways.
        [asking, refund(task.id, "120", "goodwill"), tell],
    ):
        assert tried(Script(turns), task).why == "the database is not as it should be"


def test_a_refund_that_waits_is_withdrawn() -> None:
    [task] = [task for task in tasks() if task.id == "tasks-14"]
    Order.objects.filter(pk=Order.objects.filter(total__gt=600).first().pk).update(status="delivered")
    asking = refund(task.id, "500", "damaged")
    withdrawing = [asking, lambda answer: [("undo_change", {"change": answer["change"]})], said([[True]])]
    trial = tried(Script(withdrawing), task)
    assert trial.passed, trial.why
    assert tried(Script([asking, said([[True]])]), task).why == "the database is not as it should be"


def test_no_task_is_done_already() -> None:
    for task in tasks():
        assert tried(Script([said([[True]])]), task).why == "the database is not as it should be", task.id


def test_wrong_calls_are_told_to_the_model_and_go_on() -> None:
    turns = [[("query_records", "{not json"), ("no_such_tool", {}), ("query_records", {"model": "x"})], said([[1]])]
    script = Script(turns)
    assert tried(script, ORDERS, "openai").calls == 3
    told = [message["content"] for message in script.requests[-1][2]["messages"] if message["role"] == "tool"]
    assert told[0] == "The arguments are not a JSON object."
    assert "no_such_tool" in told[1]
    assert told[2].startswith("No such model.")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_that_says_later_is_asked_again_and_one_that_refuses_is_not(provider) -> None:
    script = Script([said(ORDERS.expected())], statuses=[429, 529])
    assert tried(script, ORDERS, provider).passed
    assert len(script.requests) == 3
    refused = Script([""], statuses=[401] * 9)
    with pytest.raises(ModelError, match="answered 401") as error:
        tried(refused, ORDERS, provider)
    assert KEY not in str(error.value)
    assert len(refused.requests) == 1
    with pytest.raises(ModelError, match="answered 429"):
        tried(Script([""], statuses=[429] * 9), ORDERS, provider)


def test_the_key_is_taken_nowhere_else() -> None:
    elsewhere = Script([said([[1]])])
    with serving(elsewhere) as url:
        script = Script([""], statuses=[302] * 9)
        script.location = f"{url}/v1/messages"
        with pytest.raises(ModelError, match="answered 302"):
            tried(script, ORDERS)
    assert elsewhere.requests == []


def test_links_between_rows_and_rights_of_users_are_part_of_the_state() -> None:
    before = digests()
    with transaction.atomic():
        Product.objects.filter(suppliers__isnull=False).first().suppliers.clear()
        get_user_model().objects.filter(username="nobody").update(is_superuser=True)
        changed = {name for name, digest in digests().items() if digest != before[name]}
        transaction.set_rollback(True)
    assert changed == {"Product_suppliers", "User"}


def test_what_was_tried_before_the_provider_ended_it_is_reported() -> None:
    script = Script([list(ORDERS.calls), said(ORDERS.expected()), list(ORDERS.calls)])
    with serving(script) as url:
        ask = PROVIDERS["openai"]
        script.after = 3
        outcomes, failure = trials.answered([ORDERS, ORDERS], lambda *given: ask("m", *given, url), 1)
    assert [outcome.trials[0].passed for outcome in outcomes] == [True]
    assert "answered 401" in str(failure)


def test_the_values_may_stand_among_others_but_have_to_be_all() -> None:
    assert tells([["a", 1.0, "x"], ["b", 2.0, "y"]], [[1.0], [2.0]], ordered=True)
    assert not tells([["a", 1.0], ["b", 2.0]], [[1.0]], ordered=False)
    assert not tells([["a", 1.0]], [["a", 1.0, "x"]], ordered=False)
    assert not tells([["b", 2.0], ["a", 1.0]], [[1.0], [2.0]], ordered=True)
    assert final_values('```json\n{"answer": 3}\n```') == [[3.0]]
    assert final_values('```json\n{"answer": [[1]]}\n``` no: ```json\n{"answer": [[2]]}\n```') == [[2.0]]
    for broken in (
        "{broken}",
        '{"answer": ' + "9" * 400 + "}",
        '{"answer": ' + "[" * 9999 + "]" * 9999 + "}",
        '{"a": 1}',
    ):
        assert final_values(f"```json\n{broken}\n```") is None


def test_the_report_counts_once_and_each_time() -> None:
    good, bad = Trial(True, "", 2, 90, 10), Trial(False, "other values", 4, 250, 50)
    other = replace(ORDERS, id="trends-1")
    found = report([Outcome(ORDERS, [good, good]), Outcome(other, [good, bad])], 2)
    every = found["classes"]["all"]
    assert every == {"questions": 2, "pass_once": 0.75, "pass_each_time": 0.5, "calls": 2.5, "read": 130, "written": 20}
    assert found["classes"]["trends"]["pass_each_time"] == 0.0
    assert found["trials"]["trends-1"][1]["why"] == "other values"
    assert "pass^2" in lines(found)[0]
    assert "75.0%" in lines(found)[1]


def test_questions_are_chosen_by_id_class_and_number() -> None:
    assert [one.id for one in chosen(["totals-2", "tasks"], None)][:2] == ["totals-2", "tasks-1"]
    assert len(chosen([], 7)) == 7
    assert len(tasks()) == 14


def test_a_missing_key_and_a_wrong_call_are_said(monkeypatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    wrong = io.StringIO()
    with redirect_stderr(wrong):
        assert trials.main(["--provider", "anthropic", "--model", "m"]) == 1
        assert trials.main(["--provider", "openai", "--model", "m", "--only", "nothing"]) == 2
        with pytest.raises(SystemExit):
            trials.main(["--provider", "openai", "--model", "m", "--k", "0"])
    assert "ANTHROPIC_API_KEY is not set." in wrong.getvalue()
