import json

import pytest
from django.core.management import CommandError, call_command

from mcp_django.management.commands.mcp_call import Command
from mcp_django.models import Switch
from mcp_django.operating.switches import set_switch
from tests.factories import make_author, make_superuser, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def people():
    make_superuser("admin")
    make_user("stranger")


def run(capsys, *args, user="admin", **options):
    call_command("mcp_call", *args, user=user, **options)
    return capsys.readouterr().out


def test_it_prints_what_a_model_would_read(capsys):
    make_author(name="Ada")
    out = json.loads(run(capsys, "query_records", "model=testapp.author", 'filters={"name": "Ada"}', "limit=1"))
    assert out["rows"][0][1] == "Ada"


@pytest.mark.parametrize(
    "words",
    [
        ["query_records", "--user", "admin", "model=testapp.author", "limit=1"],
        ["query_records", "model=testapp.author", "--user", "admin", "limit=1"],
        ["--user=admin", "query_records", "model=testapp.author", "limit=1"],
        ["query_records", "--scope", "mcp:read", "model=testapp.author", "--user", "admin", "limit=1"],
        ["query_records", "--user", "admin", "--scope", "mcp:read", "model=testapp.author", "limit=1"],
    ],
)
def test_arguments_stand_before_between_or_after_options(capsys, words):
    make_author(name="Ada")
    Command().run_from_argv(["manage.py", "mcp_call", *words])
    assert json.loads(capsys.readouterr().out)["rows"][0][1] == "Ada"


@pytest.mark.parametrize("text", ["null", "12", '"x"', "a=b", ""])
def test_text_stays_text_where_the_tool_wants_text(capsys, tools, text):
    def echo(request, word: str) -> str:
        """Say it again."""
        return f"<{word}>"

    tools(echo)
    assert run(capsys, "echo", f"word={text}") == f"<{text}>\n"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["quary_records"], "There are: .*query_records"),
        (["query_records", "testapp.author"], "key=value"),
        (["query_records", "model=testapp.author", "model=testapp.book"], "once"),
        (["query_records", "model=testapp.none"], "testapp.author"),
    ],
)
def test_mistakes_are_said(capsys, args, reason):
    with pytest.raises(CommandError, match=reason):
        run(capsys, *args)


def test_a_user_without_permissions_has_no_tools(capsys):
    with pytest.raises(CommandError, match="stranger has no tool 'query_records': the user sees no model"):
        run(capsys, "query_records", "model=testapp.author", user="stranger")


def test_the_scopes_bound_it(capsys):
    with pytest.raises(CommandError, match="has no tool 'create_record'"):
        run(capsys, "create_record", "model=testapp.author", 'values={"name": "x"}', scope=["mcp:read"])


def test_without_a_tool_those_of_the_user_are_listed(capsys):
    lines = run(capsys).splitlines()
    assert lines[0].split()[0] == "list_models"
    assert any(line.startswith("query_records ") and len(line) > 50 for line in lines)
    assert run(capsys, user="stranger") == "stranger has no tools.\n"


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(capsys):
    with pytest.raises(CommandError, match=r"There is no tool 'query_record'\. .*Did you mean 'query_records'\?"):
        run(capsys, "query_record")


def test_without_a_user_the_first_superuser_calls(capsys):
    make_author(name="Ada")
    assert "Ada" in run(capsys, "query_records", "model=testapp.author", user=None)


def test_the_reason_of_a_tool_that_is_off_is_given(capsys):
    set_switch(Switch.Kind.TOOL, "delete_record", reason="audit", by="ops")
    with pytest.raises(CommandError, match=r"admin has no tool 'delete_record': .*audit"):
        run(capsys, "delete_record", "model=testapp.author", "pk=1")
