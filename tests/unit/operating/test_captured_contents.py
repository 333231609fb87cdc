"""What is kept of arguments and results: nothing by default, and never a secret."""

import json

import pytest
from django.test import override_settings

from mcp_django.models import CallEntry
from mcp_django.operating import captured_contents
from mcp_django.operating.captured_contents import Blanking
from mcp_django.schema.secrets import HIDDEN
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser

pytestmark = pytest.mark.django_db

CANARY = "canary-7f31c09d"


@pytest.fixture
def client():
    return MCPClient(make_superuser())


@pytest.fixture
def capturing(settings):
    """Have bodies kept; takes members of the setting."""

    def configure(**members):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": {"capture": "full", **members}}

    configure()
    return configure


def test_by_default_neither_arguments_nor_results_are_kept(client, call_log):
    make_author(CANARY)
    client.call("query_records", model="testapp.author", filters={"name": CANARY})
    (row,) = call_log()
    assert (row.arguments, row.result) == ("", "")
    assert all(CANARY not in str(value) for value in vars(row).values())


def test_arguments_and_results_are_kept_where_the_project_wants_them(client, call_log, capturing):
    make_author("Ada")
    client.call("query_records", model="testapp.author", filters={"name": "Ada"})
    (row,) = call_log()
    assert json.loads(row.arguments) == {"model": "testapp.author", "filters": {"name": "Ada"}}
    result = json.loads(row.result)
    assert result["structuredContent"]["rows"][0][1] == "Ada"
    # It would be there twice.
    assert result["content"] == []


def test_an_error_is_kept_as_it_was_told(client, call_log, capturing):
    with pytest.raises(MCPError):
        client.request("resources/read", uri="django://nothing/here")
    row = call_log()[-1]
    assert json.loads(row.arguments) == {"uri": "django://nothing/here"}
    assert json.loads(row.result)["code"] == -32602


def test_a_dict_can_leave_capturing_off(client, call_log, capturing):
    capturing(capture="off")
    client.call("query_records", model="testapp.author")
    (row,) = call_log()
    assert (row.arguments, row.result, row.outcome) == ("", "", "ok")


def test_long_bodies_are_cut(client, call_log, capturing):
    capturing(max_bytes=200)
    for number in range(20):
        make_author(f"Ä{number}")
    client.call("query_records", model="testapp.author", filters={"name__in": ["ä" * 50] * 20})
    (row,) = call_log()
    for kept in (row.arguments, row.result):
        assert len(kept.encode()) <= 200 + len("…".encode())
        assert kept.endswith("…")


def redact(tool, arguments, result):
    assert tool == "query_records"
    return {**arguments, "filters": "gone"}, None


def leak(tool, arguments, result):
    raise RuntimeError(str(arguments))


def test_the_projects_hook_has_the_last_say(client, call_log, capturing):
    capturing(redact=f"{__name__}.redact")
    client.call("query_records", model="testapp.author", filters={"name": CANARY})
    (row,) = call_log()
    assert json.loads(row.arguments) == {"model": "testapp.author", "filters": "gone"}
    assert row.result == ""


@pytest.mark.parametrize("path", [f"{__name__}.leak", "no.such.hook"])
def test_a_hook_that_fails_keeps_nothing(client, call_log, capturing, caplog, path):
    capturing(redact=path)
    client.call("query_records", model="testapp.author", filters={"name": CANARY})
    (row,) = call_log()
    assert (row.arguments, row.result, row.outcome) == ("", "", "ok")
    assert "redacting it failed" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    "given",
    [
        {"values": {"password": CANARY}},
        {"values": [{"api_key": CANARY}]},
        {"password__startswith": CANARY},
        {"owner.api_key__contains": CANARY},
        {"filters": json.dumps({"password": CANARY})},
        {"filters": [{"field": "password", "lookup": "startswith", "value": CANARY}]},
        {"confirm_token": CANARY},
        {"columns": ["id", "api_key"], "rows": [[1, CANARY], [2, None]]},
        {"columns": ["id", "api_key"], "rows": [CANARY]},
        {"text": f"Your new password is {CANARY}."},
        {"url": f"postgres://shop:{CANARY}@db.example/shop"},
    ],
)
def test_what_is_named_like_a_secret_is_blanked(given):
    found = json.dumps(Blanking().value(given))
    assert CANARY not in found
    assert HIDDEN in found


def test_what_is_none_stays_as_it_is():
    given = {"name": "Ada", "active": True, "password": None, "columns": ["id", "name"], "rows": [[1, "Ada"]]}
    assert Blanking().value(given) == given


LIKELY = [
    "AKIAIOSFODNN7EXAMPLE",
    "ASIAY34FZKBOKMUTVV7A",
    "xoxb-2345678901-abcdefghij",
    "sk_live_51HqJ8sK2eZvKYlo2Cabcdefgh",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "d41d8cd98f00b204e9800998ecf8427e",
    "4111 1111 1111 1111",
    "5500-0000-0000-0004",
    "378282246310005",
]


@pytest.mark.parametrize("secret", LIKELY)
@pytest.mark.parametrize("place", [lambda it: {"note": it}, lambda it: [[1, f"see {it}, and call"]], lambda it: [it]])
def test_what_looks_like_a_secret_is_blanked_wherever_it_stands(secret, place):
    found = json.dumps(Blanking().value(place(secret)))
    assert secret not in found
    assert HIDDEN in found


def test_the_number_of_a_card_is_blanked_as_a_number_too():
    assert Blanking().value({"note": 4111111111111111, "pks": [378282246310005]}) == {"note": HIDDEN, "pks": [HIDDEN]}


@pytest.mark.parametrize(
    "value",
    [
        "123e4567-e89b-12d3-a456-426614174000",
        "2026-11-23T23:31:34.123456+00:00",
        "my-very-long-product-slug-of-2024-with-words",
        "testapp.author",
        "django://shop/order/2000?fields=number,customer__name",
        "ORD-2024-000123-Shipping",
        "+49 170 1234567",
        "4111 1111 1111 1112",
        "1764029494123",
        1764029494123,
        4111111111111112,
        12.5,
        True,
        None,
        "Größe 42 für Übergrößenträger",
    ],
)
def test_what_names_something_stays_as_it_is(value):
    assert Blanking().value({"note": value, "rows": [[value]]}) == {"note": value, "rows": [[value]]}


def test_no_character_that_misleads_a_reader_stands_raw(client, call_log, capturing):
    hidden = "\u202eevil\u2066\u200b\U000e0041"
    client.call("query_records", model="testapp.author", filters={"name": f"Ada{hidden}"})
    (row,) = call_log()
    assert not set(hidden) - set("evil") & set(row.arguments)
    assert json.loads(row.arguments)["filters"] == {"name": f"Ada{hidden}"}


def test_a_secret_that_only_its_model_tells_is_blanked():
    from rest_framework.authtoken.models import Token

    assert Blanking(Token).value({"columns": ["key"], "rows": [[CANARY]]})["rows"] == [[HIDDEN]]
    assert Blanking(Token).value({"values": {"key": CANARY}})["values"] == {"key": HIDDEN}


def test_nothing_that_is_no_json_is_kept():
    assert captured_contents._result_of(b"{]") is None
    assert captured_contents._result_of(b"[1]") == [1]


def test_only_those_with_a_permission_of_its_own_see_bodies():
    permissions = {name for name, _ in CallEntry._meta.permissions}
    assert "view_bodies" in permissions
    assert "view" in CallEntry._meta.default_permissions
    assert "change" not in CallEntry._meta.default_permissions


@pytest.mark.parametrize(
    "value", [None, {"capture": "some"}, {"capture": "full", "max_bytes": 0}, {"redact": 1}, {"all": True}]
)
def test_what_cannot_be_meant_is_refused(value):
    from django.core.exceptions import ImproperlyConfigured

    from mcp_django.conf import settings as own

    with override_settings(MCP_DJANGO={"CALL_LOG": value}), pytest.raises(ImproperlyConfigured, match="CALL_LOG"):
        own.CALL_LOG  # noqa: B018


@pytest.mark.parametrize("kept", [{"CALL_LOG": True}, {"CALL_LOG": {"capture": "full"}}])
def test_no_row_of_the_log_has_a_secret_or_what_is_hidden(kept, call_log, settings):
    """A client reads, writes, searches and guesses, in each way in which a secret could come along."""
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **kept}
    client = MCPClient(make_superuser())
    author = make_author("Ada", secret_token=CANARY)
    pk = str(author.pk)
    client.call("get_record", model="testapp.author", pk=pk)
    client.call("query_records", model="testapp.author", filters={"secret_token__startswith": CANARY})
    client.call("query_records", model="testapp.author", filters=json.dumps({"secret_token": CANARY}))
    client.call("query_records", model="auth.user", fields=["username", "password"])
    client.call("update_record", model="testapp.author", pk=pk, values={"secret_token": CANARY})
    client.call("create_record", model="testapp.author", values={"name": "Bo", "secret_token": CANARY})
    client.call("aggregate_records", model="testapp.author", group_by=["secret_token"])
    client.call("delete_record", model="testapp.author", pk=pk, confirm_token=CANARY)
    token = client.headers["Authorization"].removeprefix("Bearer ")
    rows = call_log()
    assert len(rows) == 8
    for row in rows:
        for name, value in vars(row).items():
            assert CANARY not in str(value), (row.tool, name)
            assert token not in str(value), (row.tool, name)
