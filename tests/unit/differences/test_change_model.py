"""The model ``mcp.change``: callers read what became of their own writes, and nothing of others'."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models.signals import pre_save
from django.test import override_settings
from django.utils import timezone

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.context.request import MCPRequest
from mcp_django.differences.kept_changes import Changes, KeptChange
from mcp_django.models import Change
from mcp_django.orm.permission_queries import load_permissions
from mcp_django.subscriptions.watched_resources import find_watches, needs_digest
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import UpdateRecord, WriteRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = pytest.mark.django_db

CHANGES = {"model": "mcp.change"}
QUERY, UPDATE = QueryRecords(), UpdateRecord()
State = Change.State
WRITE = {"scopes": frozenset({"mcp:read", "mcp:write"})}


def caller(user: User, **options: Any) -> MCPRequest:
    return request_of(user, options.pop("site", site), **{**WRITE, **options})


def keep(request: MCPRequest, summary: str = "Ada renamed", **values: Any) -> KeptChange:
    given = {"using": "default", "tool": "update_record", "labels": ["testapp.author"], "rows": 1}
    return Changes(request).keep(**{**given, "footprint": b"{}", "summary": summary, **values})


def summaries(request: MCPRequest, **arguments: Any) -> list[str]:
    found = call(QUERY, request, **CHANGES, fields=["summary"], **arguments)
    return [row[1] for row in found["rows"]]


@pytest.fixture
def root() -> MCPRequest:
    return caller(make_superuser())


def test_a_caller_reads_what_became_of_their_writes(root: MCPRequest) -> None:
    waiting = keep(
        root,
        "2 tags to delete",
        state=State.WAITING,
        footprint=b"",
        labels=["testapp.tag"],
        rows=2,
        tool="delete_record",
        expires=timezone.now() + timedelta(minutes=5),
    )
    done = keep(root, shown={"rows": [{"name": ["Ada", "Ida"]}]})
    found = call(QUERY, root, **CHANGES)
    assert found["columns"] == ["id", "time", "state", "summary", "tool", "client", "can_undo"]
    assert [[row[0], *row[2:]] for row in found["rows"]] == [
        [done.change.pk, "done", "Ada renamed", "update_record", "Claude", True],
        [waiting.change.pk, "waiting", "2 tags to delete", "delete_record", "Claude", False],
    ]
    record = call(GetRecord(), root, **CHANGES, pk=done.change.pk)
    assert record["fields"]["difference"] == {"rows": [{"name": ["Ada", "Ida"]}]}
    assert record["fields"]["call"] == root.mcp.record.id.hex
    assert record["permissions"] == {"change": False, "delete": False}
    assert call(GetRecord(), root, pk=record["uri"])["fields"] == record["fields"]


def test_filters_orders_totals_and_search_work(root: MCPRequest) -> None:
    keep(root, "Ada renamed")
    keep(root, "3 tags deleted", labels=["testapp.tag"], rows=3, tool="delete_record", cannot_undo="Too large.")
    assert summaries(root, filters={"can_undo": True}) == ["Ada renamed"]
    assert summaries(root, filters={"state": "done", "model": "testapp.tag"}) == ["3 tags deleted"]
    assert summaries(root, filters={"time__gte": "today", "rows__gt": 1}) == ["3 tags deleted"]
    assert summaries(root, search="renamed") == ["Ada renamed"]
    assert summaries(root, ordering=["rows"]) == ["Ada renamed", "3 tags deleted"]
    totals = call(AggregateRecords(), root, **CHANGES, group_by=["tool"], aggregates=["sum:rows"])
    assert totals["rows"] == [["delete_record", 3], ["update_record", 1]]
    pages = call(QUERY, root, **CHANGES, limit=1, count=True)
    assert pages["count"] == 2
    assert len(call(QUERY, root, **CHANGES, limit=1, cursor=pages["next_cursor"])["rows"]) == 1


def test_a_description_says_what_it_holds(root: MCPRequest) -> None:
    told = str(call(DescribeModel(), root, **CHANGES))
    assert all(name in told for name in ("summary", "can_undo", "difference", "waiting"))


def test_what_waited_too_long_has_expired(root: MCPRequest) -> None:
    keep(root, state=State.WAITING, footprint=b"", expires=timezone.now() - timedelta(seconds=1))
    assert call(QUERY, root, **CHANGES, fields=["state"])["rows"][0][1] == "expired"
    assert summaries(root, filters={"state": "expired"}) == ["Ada renamed"]


def test_a_change_that_is_too_old_cannot_be_taken_back(root: MCPRequest) -> None:
    kept = keep(root)
    Change.objects.filter(pk=kept.change.pk).update(expires=timezone.now())
    assert call(QUERY, root, **CHANGES, fields=["can_undo"])["rows"][0][1] is False


def test_others_read_nothing_of_it(root: MCPRequest) -> None:
    number = keep(root).change.pk
    other = caller(User.objects.create_superuser("other"))
    keep(other, "of another")
    own = MCPSite("own")
    own.register(Author, ModelExposure, fields="__all__")
    elsewhere = [caller(root.user, site=own), caller(root.user, resource="https://other.example/mcp")]
    assert summaries(other) == ["of another"]
    for request in (other, *elsewhere):
        assert "Ada renamed" not in summaries(request)
        missing = refusal(GetRecord(), request, **CHANGES, pk=number)
        assert missing == refusal(GetRecord(), request, **CHANGES, pk=10**6).replace(str(10**6), str(number))
        totals = call(AggregateRecords(), request, **CHANGES, filters={"summary": "Ada renamed"})
        assert totals["rows"] == [[0]]


def test_a_change_of_a_model_that_the_caller_can_no_longer_view_is_not_there() -> None:
    user = make_user("ann", "testapp.view_author", "testapp.change_author", "testapp.view_tag")
    request = caller(user)
    both = keep(request, "a tag and an author", labels=["testapp.author", "testapp.tag"])
    keep(request, "an author")
    assert sorted(summaries(request)) == ["a tag and an author", "an author"]
    user.user_permissions.filter(codename="view_tag").delete()
    again = caller(User.objects.get(pk=user.pk))
    load_permissions(again.user)
    assert summaries(again) == ["an author"]
    assert refusal(GetRecord(), again, **CHANGES, pk=both.change.pk)


def test_a_narrowed_token_reads_the_changes_of_its_models_only(root: MCPRequest) -> None:
    keep(root, "an author")
    keep(root, "a tag", labels=["testapp.tag"])
    narrowed = caller(root.user, facts=Narrowing.fact(["testapp.tag"]))
    Narrowing.apply(narrowed)
    assert summaries(narrowed) == ["a tag"]


@pytest.mark.parametrize("reason", ["scope", "permission", "site", "nobody"])
def test_who_may_write_nothing_has_no_such_model(root: MCPRequest, reason: str) -> None:
    keep(root)
    request = {
        "scope": caller(root.user, scopes=frozenset({"mcp:read"})),
        "permission": caller(make_user("ann", "testapp.view_author")),
        "site": root,
        "nobody": caller(make_user("ben")),
    }[reason]
    with override_settings(MCP_DJANGO={"READ_ONLY": reason == "site"}):
        told = refusal(QUERY, request, **CHANGES)
    assert told.replace("mcp.change", "mcp.chance") == refusal(QUERY, request, model="mcp.chance")


def test_the_list_of_models_does_not_grow(root: MCPRequest, django_assert_num_queries: Any) -> None:
    before = call(ListModels(), root)
    keep(root)
    with django_assert_num_queries(0):
        after = call(ListModels(), caller(root.user))
    assert after == before
    assert "mcp.change" not in str(after)


def test_a_page_reads_the_differences_of_its_rows_at_once(root: MCPRequest, django_assert_num_queries: Any) -> None:
    for number in range(4):
        keep(root, shown={"number": number})
    with django_assert_num_queries(3):
        found = call(QUERY, root, **CHANGES, fields=["difference"])
    assert [row[1] for row in found["rows"]] == [{"number": number} for number in (3, 2, 1, 0)]


def test_a_model_of_the_project_with_this_label_comes_first() -> None:
    own = MCPSite("own")
    own.register(Tag, ModelExposure, fields="__all__")
    own.exposures_by_label["mcp.change"] = own.exposures_by_label["testapp.tag"]
    assert own.find_exposure("mcp.change") is own.find_exposure("testapp.tag")


def test_a_change_is_a_resource_that_can_be_watched(root: MCPRequest) -> None:
    uri = call(GetRecord(), root, **CHANGES, pk=keep(root).change.pk)["uri"]
    other = caller(User.objects.create_superuser("other"))
    assert [watch.uri for watch in find_watches(root, [uri])] == [uri]
    assert find_watches(other, [uri]) == []
    (page,) = find_watches(root, ["django://mcp/change"])
    assert needs_digest(root, page)


def difference_of(request: MCPRequest) -> Any:
    """What the newest change has done, as its caller reads it."""
    number = Change.objects.latest("pk").pk
    return call(GetRecord(), request, **CHANGES, pk=number)["fields"]["difference"]


def confirmed(request: MCPRequest, tool: Any = UPDATE, **arguments: Any) -> Any:
    token = call(tool, request, **arguments)["confirm_token"]
    return call(tool, caller(request.user), **arguments, confirm_token=token)


def test_a_bulk_update_is_read_row_by_row_as_its_caller_saw_it(root: MCPRequest) -> None:
    ada, bob = make_author("Ada"), make_author("Bob")
    for number in range(25):
        make_book(f"Book {number}", pages=number, author=ada)
    confirmed(root, model="testapp.book", filters={"author": ada.pk}, values={"pages": 3, "author": bob.pk})
    head, *rows = difference_of(root)
    assert (head["model"], head["rows"]) == ("testapp.book", 25)
    assert len(rows) == 20
    by_label = {row["label"]: row for row in rows}
    first, same = by_label["Book 0"], by_label["Book 3"]
    assert first["model"] == "testapp.book"
    assert first["changed"] == {"pages": [0, 3], "author": [[ada.pk, "Ada"], [bob.pk, "Bob"]]}
    assert set(same["changed"]) == {"author"}


def test_rows_with_values_of_their_own_are_read_as_they_were_and_are(root: MCPRequest) -> None:
    books = [make_book(title, pages=1) for title in ("Dune", "Emma")]
    rows = [{"pk": book.pk, "pages": number} for number, book in enumerate(books, 2)]
    call(UPDATE, root, model="testapp.book", rows=rows)
    found = [(row["pk"], row["label"], row["changed"]) for row in difference_of(root)]
    assert found == [(books[0].pk, "Dune", {"pages": [1, 2]}), (books[1].pk, "Emma", {"pages": [1, 3]})]


def test_what_several_writes_did_to_many_rows_is_read_too(root: MCPRequest) -> None:
    for title in ("Dune", "Emma"):
        make_book(title, pages=1)
    update = {"op": "update", "model": "testapp.book", "filters": {"pages": 1}, "values": {"pages": 2}}
    create = {"op": "create", "model": "testapp.tag", "values": {"name": "sand"}}
    confirmed(root, WriteRecords(), writes=[update, create])
    told = difference_of(root)
    assert [row["changed"] for row in told if "changed" in row] == [{"pages": [1, 2]}] * 2
    assert told[-1]["label"] == "sand"


def test_a_caller_reads_no_column_of_many_rows_that_they_do_not_see(root: MCPRequest) -> None:
    own = MCPSite("own")
    own.register(Book, ModelExposure, fields=["title", "pages"])
    book = make_book("Dune", price="5.00", pages=1)

    def raise_price(sender: Any, instance: Book, **kwargs: Any) -> None:
        instance.price += 1

    arguments = {"model": "testapp.book", "filters": {"title": "Dune"}, "values": {"pages": 2}}
    request = caller(root.user, site=own)
    pre_save.connect(raise_price, sender=Book)
    try:
        token = call(UPDATE, request, **arguments)["confirm_token"]
        request = caller(root.user, site=own)
        call(UPDATE, request, **arguments, confirm_token=token)
    finally:
        pre_save.disconnect(raise_price, sender=Book)
    book.refresh_from_db()
    assert book.price == 6
    [_head, row] = difference_of(request)
    assert row["changed"] == {"pages": [1, 2]}
