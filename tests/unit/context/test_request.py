from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

import pytest

from mcp_django.context.questions import Answers
from mcp_django.context.request import CAPABILITIES, LOG_LEVELS, MCPContext, MCPRequest
from mcp_django.exceptions import Cancelled, Declined, InputRequired
from mcp_django.protocol.client_requests import ClientRequest
from mcp_django.schema.consent import ConsentForm
from mcp_django.sites import MCPSite
from tests.question_rounds import EVERYTHING, YES, accept, sampled


def context(**options):
    sent = []
    built = MCPContext(site=MCPSite(), notify=lambda method, params: sent.append((method, dict(params))), **options)
    return built, sent


def test_progress_goes_to_the_client_that_asked_for_it():
    mcp, sent = context(progress_token="t")
    mcp.progress(1, 2, "halfway")
    params = {"progressToken": "t", "progress": 1, "total": 2, "message": "halfway"}
    assert sent == [("notifications/progress", params)]


def test_nothing_is_sent_to_a_client_that_did_not_ask():
    mcp, sent = context()
    mcp.progress(1)
    assert sent == []


def test_D66_progress_only_ever_grows(monkeypatch):
    monkeypatch.setattr("mcp_django.context.request.PROGRESS_INTERVAL", 0)
    mcp, sent = context(progress_token=7)
    for done in (0, 5, 5, 3, 6):
        mcp.progress(done)
    assert [params["progress"] for _, params in sent] == [0, 5, 6]


def test_D66_a_flood_of_progress_is_thinned_but_its_end_is_told():
    mcp, sent = context(progress_token=7)
    for done in range(10_001):
        mcp.progress(done, 10_000)
    assert len(sent) < 1_000
    assert sent[-1][1]["progress"] == 10_000


def test_a_report_after_the_client_has_gone_stops_the_work():
    mcp, _ = context(progress_token=7)
    mcp.cancelled = True
    with pytest.raises(Cancelled):
        mcp.progress(1)


def test_cancellation_is_not_swallowed_by_except_exception():
    assert not issubclass(Cancelled, Exception)


def test_the_scheme_of_the_connection_is_that_of_the_request():
    request = MCPRequest()
    request.META = {}
    request.connection_scheme = "https"
    assert request.is_secure()


# Log messages


def logging_context(level, **options):
    return context(log_level=level, **options)


def test_a_log_message_goes_to_the_client_that_asked_for_its_level():
    mcp, sent = logging_context("info")
    mcp.log("warning", {"order": 7, "total": Decimal("9.90"), "at": date(2026, 7, 28)}, "shop")
    data = {"order": 7, "total": "9.90", "at": "2026-07-28"}
    assert sent == [("notifications/message", {"level": "warning", "logger": "shop", "data": data})]


def test_67_nothing_is_logged_to_a_client_that_did_not_ask():
    mcp, sent = logging_context(None)
    for level in LOG_LEVELS:
        mcp.log(level, "x")
    assert sent == []


@pytest.mark.parametrize("junk", ["", "INFO", "trace", 7])
def test_67_a_junk_level_of_the_client_lets_nothing_through(junk):
    mcp, sent = logging_context(junk)
    mcp.log("emergency", "x")
    assert sent == []


@pytest.mark.parametrize("least", LOG_LEVELS)
def test_levels_are_those_of_syslog_in_their_order(least):
    mcp, sent = logging_context(least)
    for level in LOG_LEVELS:
        mcp.log(level, "x")
    assert [params["level"] for _, params in sent] == list(LOG_LEVELS[LOG_LEVELS.index(least) :])


def test_the_level_of_the_session_counts_where_the_call_names_none():
    mcp, sent = logging_context(None, session=SimpleNamespace(log_level="error"))
    mcp.log("warning", "x")
    mcp.log("error", "y")
    assert [params["data"] for _, params in sent] == ["y"]


def test_a_level_that_does_not_exist_is_a_mistake_of_the_project():
    mcp, _ = logging_context(None)
    with pytest.raises(ValueError, match="'warn' is not one of debug, info"):
        mcp.log("warn", "x")


def test_67_a_flood_of_log_messages_is_cut_and_its_end_is_told():
    mcp, sent = logging_context("error")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: mcp.log("critical", number), range(3_000)))
    assert len(sent) == 1_001
    notes = [params for _, params in sent if isinstance(params["data"], str)]
    assert notes == [{"level": "error", "data": "Only 1000 log messages per call are sent."}]


@pytest.mark.parametrize("data", ["x" * 100_000, {"rows": list(range(50_000))}], ids=["text", "object"])
def test_67_a_huge_log_message_is_cut(data):
    mcp, sent = logging_context("debug")
    mcp.log("info", data)
    [(_, params)] = sent
    assert params["data"].endswith("…")
    assert len(params["data"]) < 17_000


def test_nothing_is_logged_where_nothing_can_be_told():
    mcp = MCPContext(site=MCPSite(), log_level="debug")
    mcp.log("info", "x")
    mcp.close_stream()
    assert mcp.notify is None


# Asking


def asker(given=None, state=None, capabilities=EVERYTHING, **options):
    options.setdefault("live", True)
    options.setdefault("version", "2026-07-28")
    built = MCPContext(site=MCPSite(), capabilities=capabilities, **options)
    built.answers = Answers(given, state)
    return built


def question_of(ask, *args, **options):
    with pytest.raises(InputRequired) as error:
        ask(*args, **options)
    [question] = error.value.questions
    return question


def test_77_what_the_client_can_is_what_it_declared_for_this_call():
    mcp = asker()
    assert all(mcp.can(name) for name in ("elicitation", "elicitation.url", "sampling", "roots"))
    assert not mcp.can("sampling.tools")
    mcp = asker(capabilities={"elicitation": {}})
    assert [name for name in CAPABILITIES if mcp.can(name)] == ["elicitation"]
    assert not any(asker(live=False).can(name) for name in CAPABILITIES)
    assert not any(asker(capabilities={}).can(name) for name in CAPABILITIES)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("2024-11-05", ["sampling", "roots"]),
        ("2025-03-26", ["sampling", "roots"]),
        ("2025-06-18", ["elicitation", "sampling", "roots"]),
        ("2025-11-25", ["elicitation", "elicitation.url", "sampling", "roots"]),
    ],
)
def test_a_revision_can_ask_what_it_knows(version, names):
    assert [name for name in CAPABILITIES if asker(version=version).can(name)] == names


def test_a_capability_that_does_not_exist_is_a_mistake_of_the_project():
    with pytest.raises(ValueError, match="'telepathy' is not one of elicitation"):
        asker().can("telepathy")


def test_a_question_is_asked_and_then_answered():
    question = question_of(asker().ask, "Your age?", int, key="age")
    assert (question.key, question.method, question.proof) == ("age", ClientRequest.ELICITATION, False)
    assert question.params["message"] == "Your age?"
    assert question.params["requestedSchema"]["required"] == ["age"]
    assert asker({"age": accept(age=36)}).ask("Your age?", int, key="age") == 36


def test_a_question_without_a_key_has_a_stable_one():
    first, second = (question_of(asker().ask, "Sure?") for _ in range(2))
    assert first.key == second.key
    assert asker({first.key: accept(value=True)}).ask("Sure?") is True


def test_each_of_several_questions_has_its_own_answer():
    def run(mcp):
        return mcp.ask("Name?", str), mcp.ask("Name?", str)

    first = question_of(run, asker())
    second = question_of(run, asker({first.key: accept(value="Ada")}))
    assert run(asker({first.key: accept(value="Ada"), second.key: accept(value="Bob")})) == ("Ada", "Bob")


def test_a_key_that_no_client_could_carry_is_a_mistake_of_the_project():
    for key in ("a b", "é", "x" * 65, "a\n"):
        with pytest.raises(ValueError, match="cannot be the key"):
            asker().ask("?", key=key)


def test_78_wrong_answers_ask_again():
    question = question_of(asker({"age": accept(age="old")}).ask, "Your age?", int, key="age")
    assert question.reason == 'expected an integer, got "old".'


def test_a_default_is_shown_and_stands_in_for_what_is_left_out():
    schema = question_of(asker().ask, "Carrier?", str, key="c", default="ups").params["requestedSchema"]
    assert schema["properties"]["c"]["default"] == "ups"
    assert "required" not in schema
    assert asker({"c": accept()}).ask("Carrier?", str, key="c", default="ups") == "ups"
    assert asker({"c": accept(c="dhl")}).ask("Carrier?", str, key="c", default="ups") == "dhl"


def test_77_consent_with_proof_counts_only_for_what_was_asked():
    question = question_of(asker().ask, "Delete 5 rows?", None, key="sure", proof=True)
    assert question.params["requestedSchema"] == ConsentForm.ONLY_CONSENT
    state = Answers().state([question])
    assert question_of(asker({"sure": YES}).ask, "Delete 5 rows?", None, key="sure", proof=True)
    assert question_of(asker({"sure": YES}, state).ask, "Delete 6 rows?", None, key="sure", proof=True)
    assert asker({"sure": YES}, state).ask("Delete 5 rows?", None, key="sure", proof=True) is True


@pytest.mark.parametrize("answer", [accept(), accept(_confirm="no"), accept(_confirm="x"), accept(sure="yes")])
def test_78_an_acceptance_without_a_yes_is_a_no(answer):
    question = question_of(asker().ask, "Delete 5 rows?", None, key="sure", proof=True)
    state = Answers().state([question])
    with pytest.raises(Declined):
        asker({"sure": answer}, state).ask("Delete 5 rows?", None, key="sure", proof=True)


def test_a_user_can_be_sent_to_a_page():
    question = question_of(asker().ask_url, "Sign in to the carrier.", "https://shop.example/connect", key="url")
    wire = question.to_wire("2026-07-28")["params"]
    assert wire == {"mode": "url", "message": "Sign in to the carrier.", "url": "https://shop.example/connect"}
    assert (
        asker({"url": {"action": "accept"}}).ask_url("Sign in to the carrier.", "https://x.example", key="url") is None
    )
    with pytest.raises(Declined):
        asker({"url": {"action": "cancel"}}).ask_url("Sign in.", "https://x.example", key="url")


@pytest.mark.parametrize(
    "url", ["", "x", "/admin/", "//shop.example/", "http://", "https:///x", "https://:80/", "javascript:alert(1)",
            "https://shop.example/a b", "https://shop.example/\n"]
)  # fmt: skip
def test_a_user_is_sent_to_pages_alone(url):
    with pytest.raises(ValueError, match="is not a URL"):
        asker().ask_url("Go there.", url)


def test_the_clients_model_can_be_asked():
    question = question_of(asker().sample, "Capital of France?", max_tokens=9, system="Be brief.", temperature=0.5)
    text = {"role": "user", "content": {"type": "text", "text": "Capital of France?"}}
    params = {"messages": [text], "maxTokens": 9, "systemPrompt": "Be brief.", "temperature": 0.5}
    assert (question.method, question.params) == (ClientRequest.SAMPLING, params)
    found = asker({"s": sampled("Paris")}).sample("Capital of France?", key="s")
    assert (found.text, found.model, found.stop_reason) == ("Paris", "m", "endTurn")


def test_the_clients_roots_can_be_asked():
    assert question_of(asker().roots).method == ClientRequest.ROOTS
    answer = {"roots": [{"uri": "file:///home/ada", "name": "Home"}, {"uri": "file:///tmp"}]}
    found = asker({"r": answer}).roots(key="r")
    assert [(root.uri, root.name) for root in found] == [("file:///home/ada", "Home"), ("file:///tmp", "")]


def test_what_is_raised_to_ask_is_not_swallowed_by_except_exception():
    assert not issubclass(InputRequired, Exception)
