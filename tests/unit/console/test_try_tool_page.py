import ast
import html
import json
import re
import shlex

import pytest
from django.utils import timezone

from mcp_django.console import try_tool_page
from mcp_django.console.try_tool_page import MAX_CELL, MAX_ROWS, cell, table_of
from mcp_django.models import CallEntry
from tests.factories import make_author, make_book
from tests.testapp.models import Author, Book
from tests.unit.console.conftest import url

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
VIEW = "mcp_django.view_callentry"


def is_error(page):
    """Whether the model is told of an error."""
    answer = page.context["answer"]
    return bool(answer.refusal or answer.result.get("isError"))


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
    assert is_error(refused)


def test_what_a_tool_refuses_is_shown_as_the_model_reads_it(admin):
    answer = run(admin, "query_records", **{"arg-model": "testapp.boook"})
    assert is_error(answer)
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
    done = answered(admin, asked, accept="1", **dict.fromkeys(names, "yes"))
    assert not is_error(done)
    assert not Book.objects.exists()


def test_who_declines_changes_nothing(admin):
    done = answered(admin, ask_to_delete(admin), decline="1")
    assert is_error(done)
    assert Book.objects.exists()


def test_an_answer_is_good_for_the_call_that_was_shown_alone(admin):
    asked = ask_to_delete(admin)
    other = make_book("Persuasion")
    sent = {name: hidden(asked, name) for name in ("tool", "site", "asked_for", "state")}
    given = json.dumps({"model": "testapp.book", "pk": str(other.pk)})
    names = [field.html_name for field in asked.context["questions"][0]["form"]]
    admin.post(url("try"), {**sent, "given": given, "accept": "1", **dict.fromkeys(names, "yes")})
    assert Book.objects.count() == 2


@pytest.mark.parametrize("broken", ["", "[", "[1]", '{"a": 1}', '{"a": {}}', "null", "[" * 50_000])
def test_questions_that_were_tampered_with_are_not_run(admin, broken):
    asked = ask_to_delete(admin)
    answer = answered(admin, asked, accept="1", asked_for=broken)
    assert answer.status_code == 200
    assert Book.objects.exists()


@pytest.mark.parametrize("broken", ["", "null", "-1", "1e400", "NaN", "[1]", '"ab"'])
def test_arguments_that_were_tampered_with_are_not_run(admin, broken):
    asked = ask_to_delete(admin)
    answer = answered(admin, asked, accept="1", given=broken)
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


# What the model is made of


def choose(browser, tool, **query):
    """The form of a tool for books."""
    return browser.get(url("try"), {"tool": tool, "model": "testapp.book", **query}).context["arguments"]


def test_the_models_are_those_of_the_person_and_one_is_chosen(browser_of):
    reader = browser_of("reader", VIEW, "testapp.view_book")
    form = reader.get(url("try"), {"tool": "query_records"}).context["form"]
    labels = [value for value, _ in form.fields["model"].choices]
    assert "testapp.book" in labels
    assert "testapp.author" not in labels
    answer = run(reader, "query_records", model="testapp.book", **{"arg-model": "testapp.book"})
    assert not is_error(answer)
    assert "arg-model" in reader.get(url("try"), {"tool": "query_records", "model": "testapp.author"}).text


def test_fields_filters_orders_and_choices_of_the_model_are_offered(admin):
    form = choose(admin, "query_records")
    assert {"title", "status", "price"} <= {*form.fields["fields"].suggested}
    assert {"title", "-title"} <= {*form.fields["ordering"].suggested}
    assert {"status=draft", "status=published", "price__gt="} <= {*form.fields["filters"].suggested}
    assert {"publish", "withdraw"} <= {*form.base_fields, *choose(admin, "run_action").fields["action"].values}


def test_what_the_person_may_not_see_is_offered_nowhere(browser_of):
    reader = browser_of("reader", VIEW, "testapp.view_author")
    text = reader.get(url("try"), {"tool": "query_records", "model": "testapp.author"}).text
    assert "secret_token" not in text
    assert "name" in text


@pytest.mark.parametrize(
    ("lines", "titles"),
    [
        ("status=published", ["Emma"]),
        ("status = published\r\npages__gt=100\r\n", ["Emma"]),
        ("pages__gt=1000", []),
        ('{"or": [{"title": "Emma"}, {"title": "Sanditon"}]}', ["Emma", "Sanditon"]),
        ("", ["Emma", "Sanditon"]),
    ],
)
def test_filters_are_lines_or_json(admin, lines, titles):
    make_book("Emma", status="published", pages=300)
    make_book("Sanditon", pages=50)
    sent = {"arg-model": "testapp.book", "arg-filters": lines, "arg-fields": "title", "arg-ordering": "title"}
    table = run(admin, "query_records", model="testapp.book", **sent).context["answer"].table
    found = [row[table.columns.index("title")] for row in table.rows] if table is not None else []
    assert found == titles


def test_a_filter_that_is_no_json_is_an_error_of_its_field(admin):
    answer = run(admin, "query_records", model="testapp.book", **{"arg-filters": "{broken"})
    assert "This is not JSON." in answer.text


def test_a_new_row_is_entered_in_the_fields_of_its_form(admin):
    jane = make_author("Jane")
    form = choose(admin, "create_record")
    assert form.fields["values.published"].widget.input_type == "text"
    assert ("published", "published") in form.fields["values.status"].choices
    assert (str(jane.pk), "Jane") in form.fields["values.author"].choices
    assert form.fields["values.title"].is_asked_for
    values = {"title": "Emma", "author": jane.pk, "isbn": "9780000000001", "price": "9.50", "published": "1815-12-23"}
    values |= {"status": "draft", "active": "true", "pages": "300"}
    sent = {f"arg-values.{name}": value for name, value in values.items()}
    answer = run(admin, "create_record", model="testapp.book", confirmed="1", **{"arg-model": "testapp.book", **sent})
    assert not is_error(answer), answer.context["answer"].texts
    book = Book.objects.get()
    assert (book.title, book.author, str(book.price), book.published.year) == ("Emma", jane, "9.50", 1815)


def test_a_relation_to_many_rows_is_entered_by_its_key(admin, monkeypatch):
    monkeypatch.setattr(try_tool_page, "MAX_CHOICES", 2)
    for name in ("Ann", "Bea", "Cid"):
        make_author(name)
    assert not hasattr(choose(admin, "create_record").fields["values.author"], "choices")
    assert "Ann" not in admin.get(url("try"), {"tool": "create_record", "model": "testapp.book"}).text


def test_a_form_has_no_value_but_what_was_entered(admin):
    book = make_book("Emma", pages=300)
    sent = {"arg-model": "testapp.book", "arg-pk": book.pk, "arg-values.title": "Persuasion"}
    run(admin, "update_record", model="testapp.book", confirmed="1", **sent)
    book.refresh_from_db()
    assert (book.title, book.pages) == ("Persuasion", 300)


# Links that fill it in


def test_a_link_fills_in_model_and_arguments(admin):
    given = {"model": "testapp.book", "fields": ["title", "author.name"], "filters": {"or": [{"pages": 1}]}, "limit": 3}
    form = choose(admin, "query_records", arguments=json.dumps(given))
    assert form["fields"].value() == "title\nauthor.name"
    assert json.loads(form["filters"].value()) == {"or": [{"pages": 1}]}
    assert form["limit"].value() == 3
    answer = admin.get(url("try"), {"tool": "query_records", "arguments": json.dumps(given)})
    assert answer.context["form"].cleaned_data["model"] == "testapp.book"
    assert "answer" not in answer.context


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "7",
        '"x"',
        "[" * 100_000,
        '{"model": []}',
        '{"model": {"a": 1}}',
        '{"values": 1}',
        "{}" + " " * 30_000,
    ],
)
@pytest.mark.parametrize("tool", ["query_records", "create_record"])
def test_arguments_of_a_link_that_make_no_sense_leave_the_form_empty(admin, tool, text):
    answer = admin.get(url("try"), {"tool": tool, "model": "testapp.book", "arguments": text})
    assert answer.status_code == 200
    assert answer.context["arguments"]


def test_the_arguments_of_a_logged_call_are_for_those_who_may_read_them(admin, browser_of):
    entry = CallEntry.objects.create(
        call_id="a" * 32, time=timezone.now(), outcome="ok", arguments='{"model": "testapp.book", "search": "canary"}'
    )
    form = choose(admin, "query_records", call=entry.pk)
    assert form["search"].value() == "canary"
    reader = browser_of("reader", VIEW, "testapp.view_book")
    assert "canary" not in reader.get(url("try"), {"tool": "query_records", "call": entry.pk}).text
    for key in ("0", "x", "9" * 30, "-1"):
        assert choose(admin, "query_records", call=key)["search"].value() is None


def test_the_call_is_shown_as_json_and_as_python(admin):
    answer = run(admin, "query_records", json='{"model": "testapp.book", "search": "it\'s </pre>", "count": true}')
    given = {"model": "testapp.book", "search": "it's </pre>", "count": True}
    assert json.loads(answer.context["call"]) == {"name": "query_records", "arguments": given}
    assert ast.literal_eval(answer.context["python"]["arguments"]) == given
    assert "</pre>&quot;" not in answer.text.replace("&lt;/pre&gt;", "")
    compile(snippet_of(answer.text), "snippet", "exec")


def snippet_of(text):
    """The text that the button beside the Python code copies."""
    return html.unescape(
        next(part for part in text.split('data-copied="Copied">') if "import asyncio" in part).split("</pre>")[0]
    )


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
