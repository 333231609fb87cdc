"""What is kept of writes: whose it is, how it is stored, and how it moves from one state to another."""

import sys
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import override_settings
from django.utils import timezone

from mcp_django import MCPSite
from mcp_django.conf import Settings
from mcp_django.context.databases import has_short_characters
from mcp_django.context.request import MCPRequest
from mcp_django.differences.kept_changes import Changes, KeptChange, why_not_kept
from mcp_django.exceptions import NotFound
from mcp_django.models import Change
from mcp_django.orm import own_tables
from mcp_django.signin import FactName
from tests.tool_calls import request_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgresql]

FOOTPRINT = b'{"using": "default", "changes": {"testapp.author": "secret value"}}'
State = Change.State


def make_user(name: str = "ann") -> User:
    return User.objects.create_superuser(name)


def keep(request: MCPRequest, **values: Any) -> KeptChange:
    given = {"using": "default", "tool": "update_record", "labels": ["testapp.author"], "rows": 1, "summary": "changed"}
    return Changes(request).keep(**{**given, "footprint": FOOTPRINT, **values})


def stored(kept: KeptChange) -> Change:
    return Change.objects.get(pk=kept.change.pk)


@pytest.fixture
def ann() -> MCPRequest:
    return request_of(make_user())


def test_a_change_is_stored_with_its_caller_and_found_by_its_number(ann: MCPRequest) -> None:
    request = request_of(ann.user, resource="https://shop.example/mcp")
    made = keep(request, labels=["testapp.tag", "testapp.author", "testapp.tag"], rows=3, summary="3 tags changed")
    row = stored(made)
    assert (row.user, row.username, row.client_id, row.client_name) == (str(ann.user.pk), "ann", "client-1", "Claude")
    assert (row.site, row.resource, row.call) == (
        request.mcp.site.name,
        request.mcp.resource,
        request.mcp.record.id.hex,
    )
    assert (row.model, row.labels, row.rows) == ("testapp.tag", "testapp.author testapp.tag", 3)
    assert (row.summary, row.tool, row.state, row.cannot_undo) == ("3 tags changed", "update_record", "done", "")
    assert row.expires is not None
    assert timedelta(days=29) < row.expires - timezone.now() < timedelta(days=31)
    assert not made.change._state.adding
    assert [row.pk] == [Changes(request).own(str(made.change.pk)).change.pk]


def test_each_change_has_a_number_of_its_own(ann: MCPRequest) -> None:
    numbers = [keep(ann).change.pk for _ in range(3)]
    assert sorted(Change.objects.values_list("pk", flat=True)) == numbers
    assert [Changes(ann).own(number).change.pk for number in numbers] == numbers


def test_the_contents_are_sealed_and_open_again(ann: MCPRequest) -> None:
    contents = {"shown": {"rows": ["secret value"]}, "kept": {"arguments": {"a": "secret value"}}, "result": ["é"]}
    row = stored(keep(ann, **contents))
    for name in ("shown", "footprint", "kept", "result"):
        assert b"secret" not in bytes(getattr(row, name))
    again = Changes(ann).own(row.pk)
    assert {name: getattr(again, name) for name in contents} == contents
    assert again.footprint == FOOTPRINT


def test_contents_that_were_not_kept_are_none(ann: MCPRequest) -> None:
    kept = Changes(ann).own(keep(ann, footprint=b"").change.pk)
    assert (kept.shown, kept.footprint, kept.kept, kept.result) == (None, None, None, None)
    assert "row by row" in kept.why_not_undone


def test_contents_open_with_a_former_key_and_not_without_it(ann: MCPRequest) -> None:
    kept = keep(ann, shown={"a": 1})
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=["tests"]):
        assert kept.shown is None
    old = kept.change.shown
    from django.conf import settings

    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert KeptChange(Change(shown=old)).shown == {"a": 1}


def test_contents_of_one_column_do_not_open_as_another(ann: MCPRequest) -> None:
    kept = keep(ann, shown={"a": 1})
    assert KeptChange(Change(result=kept.change.shown)).result is None


@pytest.mark.parametrize(
    ("days", "most", "using", "told"),
    [
        (0, len(FOOTPRINT), "default", "keeps nothing"),
        (30, len(FOOTPRINT) - 1, "default", "more than the server keeps"),
        (30, len(FOOTPRINT), "other", "another database"),
        (30, len(FOOTPRINT), "default", ""),
    ],
)
def test_a_footprint_is_not_kept_where_it_cannot_be(
    ann: MCPRequest, days: int, most: int, using: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(MCP_DJANGO={"UNDO_DAYS": days}):
        monkeypatch.setattr(Settings, "UNDO_BYTES", most)
        kept = keep(ann, using=using)
        assert told in why_not_kept(using, len(FOOTPRINT))
    row = stored(kept)
    assert bool(row.footprint) is (told == "")
    assert told in row.cannot_undo
    assert (row.expires is None) is (told != "")


def test_a_reason_of_the_write_comes_first_and_keeps_no_footprint(ann: MCPRequest) -> None:
    kept = keep(ann, cannot_undo="Its exposure says undo = False.")
    assert kept.why_not_undone == "Its exposure says undo = False."
    assert not stored(kept).footprint


def test_a_change_can_be_taken_back_until_it_expires_while_it_is_done(ann: MCPRequest) -> None:
    kept = keep(ann)
    assert kept.why_not_undone == ""
    kept.change.expires = timezone.now()
    assert "30 days" in kept.why_not_undone
    assert kept.claim(State.DONE, State.UNDONE)
    assert kept.why_not_undone == "It was taken back already."


def test_others_have_no_part_in_it(ann: MCPRequest) -> None:
    number = keep(ann).change.pk
    others = [
        request_of(make_user("ben")),
        request_of(User.objects.create_superuser("root")),
        request_of(ann.user, MCPSite(name="other")),
        request_of(ann.user, resource="https://other.example/mcp"),
        request_of(None),
    ]
    for request in others:
        assert not Changes(request).rows.exists()
        with pytest.raises(NotFound):
            Changes(request).own(number)
    assert Changes(request_of(ann.user, client_id="client-2")).own(number)


def test_a_program_has_the_changes_of_its_account_only(ann: MCPRequest) -> None:
    facts = {FactName.SERVICE_ACCOUNT: 1}
    program = request_of(ann.user, client_id="service-1", facts=facts)
    number = keep(program).change.pk
    of_person = keep(ann).change.pk
    assert [row.pk for row in Changes(program).rows] == [number]
    with pytest.raises(NotFound):
        Changes(program).own(of_person)
    with pytest.raises(NotFound):
        Changes(request_of(ann.user, client_id="service-2", facts=facts)).own(number)


def test_a_change_of_a_model_that_the_caller_cannot_view_is_not_found(ann: MCPRequest) -> None:
    both = keep(ann, labels=["testapp.author", "testapp.tag"]).change.pk
    gone = keep(ann, labels=["testapp.gone"]).change.pk
    own = keep(ann).change.pk
    User.objects.filter(pk=ann.user.pk).update(is_superuser=False)
    ann.user.user_permissions.add(Permission.objects.get(codename="view_author"))
    again = request_of(User.objects.get(pk=ann.user.pk))
    assert Changes(again).own(own)
    for number in (both, gone):
        with pytest.raises(NotFound):
            Changes(again).own(number)


@pytest.mark.parametrize("pk", ["", "x", "1e3", "-1", "0", True, None, 1.5, "9" * 19, "9" * 40, 10**40, "١", [1], "1 "])
def test_a_number_that_is_none_is_not_found(ann: MCPRequest, pk: Any) -> None:
    keep(ann)
    with pytest.raises(NotFound):
        Changes(ann).own(pk)


def test_a_claim_succeeds_once_and_stores_its_values(ann: MCPRequest) -> None:
    kept = keep(ann, state=State.WAITING, footprint=b"", kept={"call": 1}, expires=timezone.now())
    again = Changes(ann).own(kept.change.pk)
    assert not stored(kept).cannot_undo
    assert again.kept == {"call": 1}
    assert kept.claim(State.WAITING, State.RUNNING, by="ann", decided=timezone.now())
    assert not again.claim(State.WAITING, State.RUNNING, by="ben")
    assert kept.claim(State.RUNNING, State.DONE, footprint=FOOTPRINT, result={"ok": True}, outcome="x" * 500)
    row = Changes(ann).own(kept.change.pk)
    assert (row.change.state, row.change.by, row.footprint, row.result) == ("done", "ann", FOOTPRINT, {"ok": True})
    assert (again.kept, row.kept) == ({"call": 1}, None)
    assert row.why_not_undone == ""
    assert len(row.change.outcome) == 200
    assert kept.change.state == State.DONE


def test_a_claim_is_undone_with_its_transaction(ann: MCPRequest) -> None:
    kept = keep(ann)
    with transaction.atomic():
        assert kept.claim(State.DONE, State.UNDONE)
        transaction.set_rollback(True)
    assert stored(kept).state == State.DONE


def test_the_same_call_finds_what_waits_or_was_just_decided(ann: MCPRequest) -> None:
    changes = Changes(ann)
    digest = changes.digest("delete_record", {"model": "testapp.author", "pk": 1})
    assert digest == changes.digest("delete_record", {"pk": 1, "model": "testapp.author"})
    assert digest != changes.digest("delete_record", {"model": "testapp.author", "pk": 2})
    assert digest != Changes(request_of(ann.user, client_id="client-2")).digest("delete_record", {"pk": 1})
    later = timezone.now() + timedelta(minutes=5)
    kept = keep(ann, state=State.WAITING, footprint=b"", digest=digest, expires=later)
    keep(ann, digest="other")
    found = changes.repeated(digest)
    assert found is not None
    assert found.change.pk == kept.change.pk
    kept.claim(State.WAITING, State.REFUSED, decided=timezone.now() - timedelta(hours=23))
    assert changes.repeated(digest) is not None
    Change.objects.filter(pk=kept.change.pk).update(decided=timezone.now() - timedelta(hours=25))
    assert changes.repeated(digest) is None
    assert Changes(request_of(make_user("ben"))).repeated(digest) is None


def test_texts_fit_their_columns(ann: MCPRequest) -> None:
    request = request_of(ann.user, client_id="c" * 300, resource="https://x/" + "r" * 300)
    row = stored(keep(request, summary="a\0b\ud800" + "é" * 200, tool="t" * 200))
    assert row.summary == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}" + "é" * 156
    assert len(row.client_id) == 255
    assert Changes(request).own(row.pk).change.pk == row.pk


def test_a_change_is_one_statement_and_little_work(ann: MCPRequest, django_assert_num_queries: Any) -> None:
    keep(ann)
    with django_assert_num_queries(1):
        keep(ann, shown={"rows": [1, 2]})
    calls = []

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "django/" in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        keep(ann, shown={"rows": [1, 2]})
    finally:
        sys.setprofile(None)
    assert len(calls) < 160


def test_emoji_are_replaced_in_a_table_that_has_no_room_for_them(
    ann: MCPRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stored(keep(ann, summary="a 🙂")).summary == "a 🙂"
    monkeypatch.setattr(own_tables, "has_short_characters", lambda using, table: True)
    assert stored(keep(ann, summary="é 🙂")).summary == "é \N{REPLACEMENT CHARACTER}"


@pytest.mark.django_db(transaction=True)
def test_a_table_of_mysql_says_which_characters_it_has_room_for() -> None:
    assert not has_short_characters("default", Change._meta.db_table)
    if connection.vendor != "mysql":
        return
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE mcp_short (name VARCHAR(10)) CHARACTER SET utf8mb3")
        try:
            assert has_short_characters("default", "mcp_short")
        finally:
            cursor.execute("DROP TABLE mcp_short")


def test_each_state_says_why_it_cannot_be_taken_back():
    told = {KeptChange(Change(state=state)).why_not_undone for state in Change.State if state != Change.State.DONE}
    assert len(told) == len(Change.State) - 1
    assert all(text.endswith(".") for text in told)
