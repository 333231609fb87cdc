"""``mcp_undo``: what a client wrote in a time is taken back, the newest first, with the rights of whoever runs it."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django import ToolError
from mcp_django.differences.client_times import ClientTime
from mcp_django.models import Change
from mcp_django.tools.undo_change import UndoChange
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book
from tests.tool_calls import call, request_of
from tests.unit.differences.all_rows import dump, tables_of

pytestmark = pytest.mark.django_db
CREATE, UPDATE, UNDO = CreateRecord(), UpdateRecord(), UndoChange()


@pytest.fixture
def ada() -> Any:
    """A client's request for Ada, who may do everything."""
    return request_of(make_superuser("ada"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    make_superuser("ops")

    def run_command(*args: str, client: str = "client-1", who: str = "ops") -> str:
        now = timezone.localtime()
        times = [f"{now - timedelta(hours=1):%Y-%m-%dT%H:%M}", f"{now + timedelta(minutes=2):%Y-%m-%dT%H:%M}"]
        options = ["--as", who, "--client", client, "--since", times[0], "--until", times[1], *args]
        call_command("mcp_undo", *options)
        return capsys.readouterr().out

    return run_command


def rows() -> Any:
    return dump(tables_of("testapp"))


def update(request: Any, obj: Any, **values: Any) -> int:
    number: int = call(UPDATE, request, model=obj._meta.label_lower, pk=str(obj.pk), values=values)["change"]
    return number


def test_a_client_s_time_is_taken_back_the_newest_first(ada: Any, run: Any) -> None:
    book = make_book("Dune", price="5.00")
    before = rows()
    update(ada, book, price="6.00")
    update(ada, book, price="7.00", title="Dune 2")
    call(CREATE, ada, model="testapp.tag", values={"name": "sand"})
    changed = rows()
    shown = run("--dry-run")
    assert rows() == changed
    assert [line.split()[4] for line in shown.splitlines()] == ["create_record", "update_record", "update_record"]
    assert run("--noinput").endswith("Taken back: 3 changes.\n")
    assert rows() == before
    assert "nothing in this time" in run("--noinput")
    assert Change.objects.filter(tool="undo_change", username="ops", state="done").count() == 3


def test_what_cannot_be_taken_back_is_left_out_with_what_depends_on_it(ada: Any, run: Any) -> None:
    book, other = make_book("Dune", price="5.00"), make_book("Emma")
    first = update(ada, book, price="6.00")
    second = update(ada, book, price="7.00")
    update(ada, other, pages=3)
    # Somebody has changed it since.
    Book.objects.filter(pk=book.pk).update(price="8.00")
    with pytest.raises(CommandError, match="2 changes cannot be taken back"):
        run("--noinput")
    other.refresh_from_db()
    book.refresh_from_db()
    assert (other.pages, str(book.price)) == (0, "8.00")
    assert {Change.objects.get(pk=number).state for number in (first, second)} == {"done"}


def test_only_the_client_the_user_and_the_model_that_are_named(ada: Any, run: Any) -> None:
    author = make_author("Frank")
    book = make_book("Dune")
    update(ada, author, name="Ida")
    update(request_of(ada.user, client_id="client-2"), book, title="Dune 2")
    update(request_of(make_superuser("bob")), make_book("Emma"), pages=3)
    assert "book" in run("--noinput", "--user", "bob")
    run("--noinput", "--model", "testapp.Author")
    assert Author.objects.get(pk=author.pk).name == "Frank"
    assert Book.objects.get(pk=book.pk).title == "Dune 2"


def test_the_rights_of_who_runs_it_decide(ada: Any, run: Any) -> None:
    author = make_author("Frank")
    update(ada, author, name="Ida")
    make_user("reader", "testapp.view_author")
    before = rows()
    with pytest.raises(CommandError, match="1 change cannot be taken back"):
        run("--noinput", who="reader")
    make_user("stranger")
    with pytest.raises(CommandError, match="1 change cannot be taken back"):
        run("--noinput", who="stranger")
    assert rows() == before


@pytest.mark.parametrize("answer", ["", "n", "no", None])
def test_without_a_yes_nothing_changes(ada: Any, run: Any, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def asked(_question: str) -> Any:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", asked)
    update(ada, make_author("Frank"), name="Ida")
    before = rows()
    with pytest.raises(CommandError, match=r"Nothing was changed\."):
        run()
    assert rows() == before
    monkeypatch.setattr("builtins.input", lambda _question: "y")
    assert "Taken back: 1 change." in run()


def test_an_undo_within_the_time_counts_for_what_it_did(ada: Any, run: Any) -> None:
    author = make_author("Frank")
    before = rows()
    number = update(ada, author, name="Ida")
    first = call(UNDO, ada, change=number)["change"]
    assert rows() == before
    assert "nothing" in run("--noinput")
    # In force again.
    call(UNDO, ada, change=first)
    assert "Taken back: 1 change." in run("--noinput")
    assert rows() == before


def test_who_is_not_active_any_more_left_changes_that_can_be_taken_back(ada: Any, run: Any) -> None:
    author = make_author("Frank")
    update(ada, author, name="Ida")
    type(ada.user).objects.filter(pk=ada.user.pk).update(is_active=False)
    run("--noinput")
    assert Author.objects.get(pk=author.pk).name == "Frank"
    with pytest.raises(CommandError, match="not active"):
        run("--noinput", who="ada")


def test_too_many_rows_are_refused(ada: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientTime, "MAX_ROWS", 1)
    update(ada, make_author("Frank"), name="Ida")
    update(ada, make_author("Frank"), name="Ida")
    with pytest.raises(CommandError, match="wrote 2 rows"):
        run("--noinput")


def test_times_are_checked(run: Any) -> None:
    for since, until, said in [
        ("25:00", "26:00", "--since is '25:00'"),
        ("14:00", "x", "--until is 'x'"),
        ("14:20", "14:00", "not before"),
        ("2026-02-30T10:00", "14:00", "--since is"),
    ]:
        with pytest.raises(CommandError, match=said):
            call_command("mcp_undo", "--as", "ops", "--client", "x", "--since", since, "--until", until)
    with pytest.raises(CommandError, match="a client 'x'"):
        call_command("mcp_undo", "--as", "ops", "--client", "x", "--since", "00:00", "--until", "2999-01-01T00:00Z")


def test_what_has_become_of_the_plan_is_checked_again(ada: Any) -> None:
    author = make_author("Frank")
    update(ada, author, name="Ida")
    now = timezone.now()
    writes = ClientTime(ada, "client-1", now - timedelta(minutes=5), now + timedelta(minutes=5))
    pin = writes.pin(writes.plan())
    Author.objects.filter(pk=author.pk).update(name="Zoe")
    with pytest.raises(ToolError, match="no longer what was shown"):
        writes.run(pin)
    assert Author.objects.get(pk=author.pk).name == "Zoe"


def test_a_misspelt_model_is_told_and_not_taken_for_one_that_nobody_has_written(ada: Any, run: Any) -> None:
    update(ada, make_book("Dune"), price="6.00")
    with pytest.raises(CommandError, match=r"no model 'testapp\.bok'.*testapp\.book"):
        run("--model", "testapp.bok", "--dry-run")
    assert "Dune" in run("--model", "testapp.Book", "--dry-run")


def test_who_never_wrote_is_told_from_who_wrote_nothing_in_this_time(ada: Any, run: Any) -> None:
    number = update(ada, make_book("Dune"), price="6.00")
    Change.objects.filter(pk=number).update(client_name="Claude", time=timezone.now() - timedelta(days=2))
    assert "wrote nothing in this time" in run("--noinput")
    assert "wrote nothing in this time" in run("--noinput", "--user", "ada")
    for client, said in [
        ("client1", r" Did you mean 'client-1'\?"),
        ("claude", " Did you mean 'client-1'"),
        ("x", "$"),
    ]:
        with pytest.raises(CommandError, match=rf"Nothing is kept that a client '{client}' has written\.{said}"):
            run("--noinput", client=client)
    with pytest.raises(CommandError, match=r"written for a user 'adda'\. Did you mean 'ada'\?"):
        run("--noinput", "--user", "adda")


def test_it_is_a_call_in_the_log_with_what_it_changed(ada: Any, run: Any, call_log: Any) -> None:
    update(ada, make_author("Frank"), name="Ida")
    left = make_author("Jane")
    update(ada, left, name="Ina")
    Author.objects.filter(pk=left.pk).update(name="Zoe")
    with pytest.raises(CommandError, match="1 change cannot be taken back"):
        run("--dry-run")
    assert call_log() == []
    with pytest.raises(CommandError, match="1 change cannot be taken back"):
        run("--noinput")
    [entry] = call_log()
    assert (entry.method, entry.tool, entry.kind, entry.client_name) == (
        "mcp_undo",
        "undo_change",
        "stdio",
        "manage.py",
    )
    assert (entry.username, entry.rows_changed, entry.outcome, entry.writes) == ("ops", 1, "ok", True)
    assert len(entry.history) == 1
    assert Change.objects.get(tool="undo_change").call == entry.call_id
