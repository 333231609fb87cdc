"""Which calls wait for the yes of another person, and what becomes of them."""

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.utils import timezone

from mcp_django import MCPSite, approval, site
from mcp_django.models import ApprovalRequest, ApprovalRule, Change, KeyedCall
from mcp_django.testing import MCPClient
from tests.approval_rules import approve, make_manager, make_rule
from tests.confirming import signed_in, tool_of
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.admin import BookAdmin
from tests.testapp.models import Author, Book, Loan, Tag

pytestmark = pytest.mark.django_db

BOOK = {"model": "testapp.book"}
ON_BOOKS = {"labels": ["testapp.book"]}


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def caller(root):
    return MCPClient(root)


@pytest.fixture
def manager():
    return make_manager()


def waits(call):
    """Return the number of the request that a call waits with."""
    assert call.is_error is False, call.text
    assert call.structured["state"] == "waiting", call.structured
    return call.structured["change"]


def is_done(call):
    assert call.is_error is False, call.text
    return "state" not in call.structured


# What a caller gets


def test_a_call_to_which_a_rule_applies_waits_and_says_for_whom(caller, manager):
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    book = make_book("Dune", price="5.00")
    found = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "120"})
    told = found.structured
    number = waits(found)
    assert told["message"].startswith(f"Request {number} waits for somebody with ")
    assert told["rule"] == "Big books"
    assert told["url"].startswith("http://testserver/admin/")
    assert str(number) in told["url"]
    assert told["difference"]["changed"]["testapp.book"][0]["columns"] == {"price": ["5.00", "120.00"]}
    assert "price__gt" not in found.text
    book.refresh_from_db()
    assert str(book.price) == "5.00"


def test_a_call_to_which_no_rule_applies_is_made_at_once(caller, manager):
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    book = make_book("Dune", price="5.00")
    assert is_done(caller.call("update_record", **BOOK, pk=book.pk, values={"price": "20"}))
    book.refresh_from_db()
    assert str(book.price) == "20.00"


def test_the_row_before_the_call_counts_too(caller, manager):
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    book = make_book("Dune", price="120.00")
    waits(caller.call("update_record", **BOOK, pk=book.pk, values={"price": "1"}))
    make_rule("After", **ON_BOOKS, condition={"after": {"title": "Gone"}})
    ApprovalRule.objects.filter(name="Big books").delete()
    other = make_book("Emma", price="1.00")
    waits(caller.call("update_record", **BOOK, pk=other.pk, values={"title": "Gone"}))


def test_the_yes_of_another_person_makes_the_call_once(caller, manager, root):
    make_rule(**ON_BOOKS, condition={"after": {"price__gt": 100}})
    book = make_book("Dune", price="5.00")
    arguments = {**BOOK, "pk": book.pk, "values": {"price": "120"}}
    number = waits(caller.call("update_record", **arguments))
    assert waits(caller.call("update_record", **arguments)) == number
    change = approve(manager, number)
    assert (change.state, change.by) == ("done", "manager")
    book.refresh_from_db()
    assert str(book.price) == "120.00"
    again = caller.call("update_record", **arguments)
    assert again.structured["updated"] is True
    assert approve(manager, number).state == "done"
    entry = LogEntry.objects.get()
    assert entry.user == root
    assert "approved by manager" in entry.get_change_message()
    assert caller.call("undo_change", change=number).structured["undone"] is True
    book.refresh_from_db()
    assert str(book.price) == "5.00"


def test_a_request_is_withdrawn_by_its_caller(caller, manager):
    make_rule(**ON_BOOKS)
    values = {"title": "New", "author": make_author().pk, "isbn": "1", "price": "3"}
    number = waits(caller.call("create_record", **BOOK, values=values))
    assert caller.call("undo_change", change=number).structured["withdrawn"] is True
    assert approve(manager, number).state == "withdrawn"


def test_a_dry_run_says_that_the_call_will_wait(caller, manager):
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    book = make_book("Dune", price="5.00")
    tried = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "120"}, dry_run=True)
    assert "will wait for somebody with" in tried.structured["next"]
    assert not ApprovalRequest.objects.exists()


def test_the_words_of_the_model_are_kept_with_the_request(caller, manager):
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "X"}, reason="She asked for it"))
    assert ApprovalRequest.objects.get().reason == "She asked for it"
    assert (
        waits(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "X"}, reason="Other words")) == number
    )


def test_tools_announce_a_reason_only_where_there_are_rules(caller, manager):
    def listed():
        return {tool["name"]: tool["inputSchema"]["properties"] for tool in caller.request("tools/list")["tools"]}

    assert "reason" not in listed()["update_record"]
    make_rule(**ON_BOOKS)
    assert "reason" in listed()["update_record"]
    assert "reason" not in listed()["query_records"]


def test_a_rule_that_blocks_refuses_the_call_by_its_name(caller):
    make_rule(**ON_BOOKS, effect="block", condition={"price__gt": 100})
    book = make_book("Dune")
    refused = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "120"})
    assert refused.is_error
    assert "Big books" in refused.text
    assert not Change.objects.exists()


def test_a_call_that_nobody_else_can_decide_is_refused_at_once(caller, root):
    make_rule(**ON_BOOKS)
    refused = caller.call("update_record", **BOOK, pk=make_book("Dune").pk, values={"title": "X"})
    assert refused.is_error
    assert "there is nobody else" in refused.text
    assert not Change.objects.exists()


# What a rule is about


def test_rows_that_a_deletion_takes_with_it_count(caller, manager):
    make_rule(labels=["testapp.loan"], kinds=["delete"])
    book = make_book("Dune")
    assert is_done(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "Emma"}))
    Loan.objects.create(book=book, borrower="Ada", due=timezone.now())
    waits(caller.call("delete_record", **BOOK, pk=book.pk))


def test_links_of_many_to_many_fields_are_a_part_of_their_row(caller, manager):
    make_rule(**ON_BOOKS, kinds=["update"])
    book = make_book("Dune")
    tag = Tag.objects.create(name="new")
    waits(caller.call("update_record", **BOOK, pk=book.pk, values={"tags": [tag.pk]}))


def test_a_rule_holds_in_each_tool_that_writes_rows(caller, manager):
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    one, two = make_book("Dune", price="5.00"), make_book("Emma", price="6.00")
    rows = [{"pk": one.pk, "price": "150"}, {"pk": two.pk, "price": "7"}]
    waits(caller.call("update_record", **BOOK, rows=rows))
    write = {"op": "update", **BOOK, "pk": one.pk, "values": {"price": "151"}}
    waits(caller.call("write_records", writes=[write]))
    waits(caller.call("update_record", **BOOK, pks=[one.pk, two.pk], values={"price": "152"}))
    assert sorted(map(str, Book.objects.values_list("price", flat=True))) == ["5.00", "6.00"]


def test_only_calls_above_a_number_of_rows_wait(caller, manager):
    make_rule(**ON_BOOKS, rows_above=1)
    books = [make_book(title) for title in ("Dune", "Emma")]
    rows = [{"pk": book.pk, "title": f"{book.title}!"} for book in books]
    assert is_done(caller.call("update_record", **BOOK, rows=[{**rows[0], "title": "Dune?"}]))
    waits(caller.call("update_record", **BOOK, rows=rows))


def test_an_undo_is_a_write_like_any_other(caller, manager):
    book = make_book("Dune", price="120.00")
    change = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "1"}).structured["change"]
    make_rule(**ON_BOOKS, condition={"after": {"price__gt": 100}})
    waits(caller.call("undo_change", change=change))


def test_a_rule_for_some_callers_leaves_others_alone(caller, manager, root):
    group = Group.objects.create(name="Interns")
    make_rule(**ON_BOOKS, groups=[group])
    book = make_book("Dune")
    assert is_done(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "A"}))
    root.groups.add(group)
    waits(MCPClient(root).call("update_record", **BOOK, pk=book.pk, values={"title": "B"}))


# Functions


def test_a_tool_of_the_project_waits_because_of_its_arguments(caller, manager):
    paid = []

    def pay_out(request, amount: int) -> str:
        """Pay out."""
        paid.append(amount)
        return f"Paid {amount}"

    declared = approval(when={"arguments": {"amount__gt": 100}}, permission="testapp.change_author", name="Payouts")
    with tool_of(pay_out, destructive=False, approval=declared):
        assert caller.call("pay_out", amount=100).text == "Paid 100"
        waiting = caller.call("pay_out", amount=101)
        number = waits(waiting)
        assert paid == [100]
        assert approve(manager, number).state == "done"
        assert paid == [100, 101]
        assert caller.call("pay_out", amount=101).text == "Paid 101"
        assert paid == [100, 101]


# Actions


@pytest.fixture
def looking():
    """Let the action of books that nobody can try write authors too, as far as a test says."""
    written = []

    class ActingAdmin(BookAdmin):
        actions = ("stamp",)

        @admin.action(permissions=["change"])
        def stamp(self, request, queryset):
            queryset.update(pages=7)
            for write in written:
                write()

        stamp.mcp_destructive = False

    was = admin.site._registry[Book]
    admin.site._registry[Book] = ActingAdmin(Book, admin.site)
    site._forget()
    yield written
    admin.site._registry[Book] = was
    site._forget()


def test_an_action_that_cannot_be_tried_waits_for_rules_on_its_own_rows(caller, manager, looking):
    book = make_book("Dune", price="1.00")
    make_rule("Authors", labels=["testapp.author"])
    assert is_done(caller.call("stamp_testapp_book", pks=[book.pk]))
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    waits(caller.call("stamp_testapp_book", pks=[book.pk]))


def test_an_action_that_turns_out_to_write_other_rows_is_undone(caller, manager, looking):
    book = make_book("Dune", price="1.00")
    looking.append(lambda: Author.objects.filter(pk=book.author_id).update(name="Other"))
    make_rule("Authors", labels=["testapp.author"])
    refused = caller.call("stamp_testapp_book", pks=[book.pk])
    assert refused.is_error
    assert "'Authors' is about rows that this turned out to write" in refused.text
    book.refresh_from_db()
    assert book.pages != 7
    assert book.author.name != "Other"


# Between the request and the yes


def test_a_rule_that_blocks_by_now_refuses_the_yes(caller, manager):
    rule = make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "X"}))
    rule.effect = "block"
    rule.save()
    make_rule("Other", **ON_BOOKS)
    change = approve(manager, number)
    assert change.state == "failed"
    assert "forbids" in change.outcome
    book.refresh_from_db()
    assert book.title == "Dune"


def test_a_rule_that_wants_somebody_else_by_now_refuses_the_yes(caller, manager):
    rule = make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "X"}))
    rule.permission = "testapp.delete_author"
    rule.save()
    make_rule("Other", labels=["testapp.tag"])
    change = approve(manager, number)
    assert change.state == "failed"
    assert "By now" in change.outcome


def test_a_row_that_changed_meanwhile_refuses_the_yes(caller, manager):
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "X"}))
    Book.objects.filter(pk=book.pk).update(title="Other")
    assert approve(manager, number).state == "failed"
    book.refresh_from_db()
    assert book.title == "Other"


def test_rights_that_are_gone_refuse_the_yes(caller, manager, root):
    make_rule(**ON_BOOKS)
    book = make_book("Dune")
    number = waits(caller.call("update_record", **BOOK, pk=book.pk, values={"title": "X"}))
    root.is_superuser = False
    root.save()
    assert approve(manager, number).state == "failed"


def test_nobody_approves_their_own_call(caller, manager, root):
    make_rule(**ON_BOOKS)
    number = waits(caller.call("update_record", **BOOK, pk=make_book("Dune").pk, values={"title": "X"}))
    change = approve(root, number)
    assert change.state == "failed"
    assert signed_in(root).get(f"/mcp/confirm/{number}").status_code == 404


def test_the_key_of_a_call_that_waits_belongs_to_no_other_call(caller, manager):
    make_rule(**ON_BOOKS, condition={"price__gt": 100})
    book = make_book("Dune", price="5.00")
    key = {"idempotency_key": "k1"}
    arguments = {**BOOK, "pk": book.pk, "values": {"price": "120"}, **key}
    number = waits(caller.call("update_record", **arguments))
    other = caller.call("update_record", **BOOK, pk=book.pk, values={"price": "6"}, **key)
    assert other.is_error
    assert "other arguments" in other.text
    assert waits(caller.call("update_record", **arguments)) == number
    assert approve(manager, number).state == "done"
    assert '"updated":true' in KeyedCall.objects.get().result.replace(" ", "").replace('\\"', '"')
    assert caller.call("update_record", **arguments).structured["updated"] is True


def test_a_site_without_rules_asks_the_database_for_nothing_more(caller, django_assert_num_queries, monkeypatch):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from mcp_django.server.methods import tools

    book = make_book("Dune")
    caller.call("update_record", **BOOK, pk=book.pk, values={"title": "A"})
    with CaptureQueriesContext(connection) as found:
        caller.call("update_record", **BOOK, pk=book.pk, values={"title": "B"})
    monkeypatch.setattr(tools.CallApproval, "of", lambda *given: None)
    with django_assert_num_queries(len(found)):
        caller.call("update_record", **BOOK, pk=book.pk, values={"title": "C"})


def test_an_exposure_declares_its_own(root, manager, monkeypatch):
    exposure = site.exposures[Author]
    monkeypatch.setattr(exposure, "approval", approval(permission="testapp.change_author", rows_above=0))
    author = make_author("Ada")
    found = MCPClient(root).call("update_record", model="testapp.author", pk=author.pk, values={"name": "B"})
    waits(found)
    assert found.structured["rule"] == "approval of testapp.author"
    assert isinstance(site, MCPSite)
