import json
import re
import shlex

import pytest

from mcp_django.console.try_tool_page import MAX_CELL, MAX_ROWS, cell, table_of
from mcp_django.models import CallEntry
from tests.factories import make_author, make_book
from tests.testapp.models import Author, Book
from tests.unit.console.conftest import url

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
VIEW = "mcp_django.view_callentry"


def run(browser, tool, **sent):
    return browser.post(url("try"), {"tool": tool, "site": "mcp_django", **sent})


def hidden(answer, name):
    """The value of a hidden field, as a browser would send it back."""
    return next(
        match[1]
        .replace("&quot;", '"')
        .replace("&#x27;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
        for match in re.finditer(rf'name="{name}" value="([^"]*)"', answer.text)
    )


def answered(browser, asked, **sent):
    names = ("tool", "site", "given", "asked_for", "state")
    return browser.post(url("try"), {name: hidden(asked, name) for name in names} | sent)


def test_the_tools_are_those_of_the_person_in_front_of_it(admin, browser_of):
    assert "delete_record" in admin.get(url("try")).context["tools"]
    reader = browser_of("reader", VIEW, "testapp.view_book")
    assert "delete_record" not in reader.get(url("try")).context["tools"]
    assert "tool" not in reader.get(url("try"), {"tool": "delete_record"}).context
    assert "tool" not in run(reader, "delete_record", confirmed="1").context


def test_a_form_has_the_arguments_of_the_tool(admin):
    text = admin.get(url("try"), {"tool": "query_records"}).text
    for name in ("model", "filters", "ordering", "limit"):
        assert f'name="arg-{name}"' in text
    assert 'name="confirmed"' not in text


def test_a_call_is_answered_as_a_table_and_as_json_with_what_it_cost(admin):
    make_book("Emma")
    answer = run(admin, "query_records", **{"arg-model": "testapp.book", "arg-fields": "title"})
    found = answer.context["answer"]
    assert found.table.rows[0][found.table.columns.index("title")] == "Emma"
    assert json.loads(found.json)["structuredContent"]["rows"]
    assert found.record.queries > 0
    assert found.tokens > 0
    assert "Emma" in answer.text


def test_rows_and_fields_that_are_hidden_from_the_person_are_in_no_answer(browser_of):
    make_author("Jane", secret_token="canary-of-the-secret")
    reader = browser_of("reader", VIEW, "testapp.view_author")
    answer = run(reader, "query_records", **{"arg-model": "testapp.author"})
    assert "Jane" in answer.text
    assert "canary-of-the-secret" not in answer.text
    refused = run(reader, "query_records", **{"arg-model": "testapp.book"})
    assert refused.context["answer"].is_error


def test_what_a_tool_refuses_is_shown_as_the_model_reads_it(admin):
    answer = run(admin, "query_records", **{"arg-model": "testapp.boook"})
    assert answer.context["answer"].is_error
    assert "testapp.book" in answer.text


def test_a_write_takes_a_confirmation(admin):
    sent = {"arg-model": "testapp.author", "arg-values": '{"name": "Jane"}'}
    answer = run(admin, "create_record", **sent)
    assert "Confirm that you want that" in answer.text
    assert "answer" not in answer.context
    assert not Author.objects.exists()
    run(admin, "create_record", confirmed="1", **sent)
    assert Author.objects.get().name == "Jane"


def test_nothing_runs_by_a_link(admin):
    query = {"tool": "create_record", "arg-model": "testapp.author", "arg-values": '{"name": "Jane"}', "confirmed": "1"}
    assert "answer" not in admin.get(url("try"), query).context
    assert not Author.objects.exists()


def test_without_the_scope_to_write_there_is_no_tool_that_writes(admin):
    answer = run(admin, "create_record", asked="1", scope="mcp:read", confirmed="1")
    assert "tool" not in answer.context
    assert "query_records" in answer.context["tools"]


def ask_to_delete(admin, title="Emma"):
    book = make_book(title)
    return run(admin, "delete_record", confirmed="1", **{"arg-model": "testapp.book", "arg-pk": str(book.pk)})


def test_what_a_client_would_be_asked_is_asked_here(admin):
    asked = ask_to_delete(admin)
    assert "Emma" in asked.context["questions"][0]["message"]
    assert Book.objects.exists()
    names = [field.html_name for field in asked.context["questions"][0]["form"]]
    done = answered(admin, asked, accept="1", **dict.fromkeys(names, "true"))
    assert not done.context["answer"].is_error
    assert not Book.objects.exists()


def test_who_declines_changes_nothing(admin):
    done = answered(admin, ask_to_delete(admin), decline="1")
    assert done.context["answer"].is_error
    assert Book.objects.exists()


def test_an_answer_is_good_for_the_call_that_was_shown_alone(admin):
    asked = ask_to_delete(admin)
    other = make_book("Persuasion")
    sent = {name: hidden(asked, name) for name in ("tool", "site", "asked_for", "state")}
    given = json.dumps({"model": "testapp.book", "pk": str(other.pk)})
    names = [field.html_name for field in asked.context["questions"][0]["form"]]
    admin.post(url("try"), {**sent, "given": given, "accept": "1", **dict.fromkeys(names, "true")})
    assert Book.objects.count() == 2


@pytest.mark.parametrize("broken", ["", "[", "[1]", '{"a": 1}', '{"a": {}}', "null", "[" * 50_000])
def test_questions_that_were_tampered_with_are_not_run(admin, broken):
    asked = ask_to_delete(admin)
    answer = answered(admin, asked, accept="1", asked_for=broken)
    assert answer.status_code == 200
    assert Book.objects.exists()


def test_what_rows_say_is_inert_in_questions_and_answers(admin):
    asked = ask_to_delete(admin, "<script>alert(1)</script>")
    assert "<script>alert" not in asked.text
    answer = run(admin, "query_records", **{"arg-model": "testapp.book"})
    assert "&lt;script&gt;alert" in answer.text
    assert "<script>alert" not in answer.text


def test_all_arguments_can_be_json(admin):
    make_book("Emma")
    answer = run(admin, "query_records", json='{"model": "testapp.book", "limit": 1}')
    assert len(answer.context["answer"].table.rows) == 1
    for broken in ("{", "[]", "1", "[" * 100_000):
        assert "not a JSON object" in run(admin, "query_records", json=broken).text


def test_the_call_as_curl_has_no_token_and_can_be_run_as_it_stands(admin):
    answer = run(admin, "query_records", json='{"model": "testapp.book", "search": "it\'s $(date)"}')
    words = shlex.split(answer.context["curl"].replace("\\\n", ""))
    assert words[:2] == ["curl", "http://testserver/mcp"] or words[1].endswith("/mcp")
    assert "Authorization: Bearer $MCP_TOKEN" in words
    body = json.loads(words[words.index("--data") + 1])
    assert body["params"]["arguments"] == {"model": "testapp.book", "search": "it's $(date)"}
    headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "query_records")


def test_the_curl_command_is_one_that_the_endpoint_takes(admin, client):
    from mcp_django.oauth.resource_urls import resource_url
    from mcp_django.oauth.stored_tokens import issue_token
    from tests.factories import make_superuser

    answer = run(admin, "query_records", json='{"model": "testapp.book"}')
    words = shlex.split(answer.context["curl"].replace("\\\n", ""))
    headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
    token = issue_token(make_superuser("caller"), scopes=["mcp:read"], resource=resource_url(None, "/mcp"))
    headers["Authorization"] = f"Bearer {token}"
    kind = headers.pop("Content-Type")
    sent = client.post("/mcp", words[words.index("--data") + 1], content_type=kind, headers=headers)
    assert sent.status_code == 200
    assert "result" in sent.json()


def test_calls_are_in_the_log_and_looking_is_not(admin, call_log):
    admin.get(url("try"), {"tool": "query_records"})
    run(admin, "query_records", **{"arg-model": "testapp.book"})
    entry = call_log()[-1]
    assert CallEntry.objects.count() == 1
    assert (entry.username, entry.client_name, entry.tool) == ("root", "console", "query_records")
    assert entry.kind == "person"


def test_a_site_that_is_none_is_an_error_of_the_form(admin):
    assert admin.get(url("try"), {"site": "none"}).context["form"].errors["site"]
    assert run(admin, "query_records", site="none").status_code == 200


def test_the_number_of_queries_is_bounded(admin, django_assert_max_num_queries):
    with django_assert_max_num_queries(20):
        admin.get(url("try"), {"tool": "query_records"})


@pytest.mark.parametrize(
    ("structured", "rows"),
    [
        (None, None),
        ({"a": 1}, None),
        ({"columns": ["a", "b"], "rows": [[1, None]]}, [["1", ""]]),
        ({"columns": [{"name": "a"}], "rows": [[[7, "label"]], [[1, 2]]]}, [["label"], ["[1, 2]"]]),
        ({"total": 2, "models": [{"a": 1}, {"b": "x"}]}, [["1", ""], ["", "x"]]),
        ({"empty": []}, None),
    ],
)
def test_rows_of_an_answer_become_a_table(structured, rows):
    found = table_of(structured)
    assert (found.rows if found else None) == rows


def test_a_table_is_bounded():
    found = table_of({"columns": ["a"], "rows": [["x"]] * (MAX_ROWS + 3)})
    assert (len(found.rows), found.more) == (MAX_ROWS, 3)
    assert len(cell("x" * 10_000)) == MAX_CELL
