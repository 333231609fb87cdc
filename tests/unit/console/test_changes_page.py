"""The page of changes: what calls wrote, in order, as far as its reader may see it."""

import html
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import QuerySet
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.approvals.queue import ApprovalQueue
from mcp_django.console import call_query, changes_page, known_sites
from mcp_django.differences.kept_changes import KeptChange
from mcp_django.models import CallEntry, Change
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.approving import PERMISSION, ask
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.admin import AuthorAdmin
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, request_of
from tests.unit.console.conftest import url
from tests.unit.console.test_call_log_admin import CALLS, EVIL, log

pytestmark = [pytest.mark.django_db, pytest.mark.postgresql]
TOOLS = {"create": CreateRecord(), "update": UpdateRecord(), "delete": DeleteRecord()}
READER = ("mcp_django.view_callentry", "mcp_django.view_change")
NO_VALUES = "Its values are not kept."


@pytest.fixture
def ann() -> User:
    """Whose assistant writes."""
    return make_superuser("ann")


@pytest.fixture
def reader_with(browser_of: Callable[..., Client]) -> Callable[..., Client]:
    """The browser of somebody who may read the log and changes, with more permissions."""
    return lambda *permissions: browser_of("eve", *READER, *permissions)


def write(
    user: Any, deed: str, model: str, *, hours: float = 0, site: Any = None, session: str = "", **given: Any
) -> Any:
    """Write as a client does, with an entry of the call in the log; return the number of the change."""
    request = request_of(user, *([site] if site else []))
    done = call(TOOLS[deed], request, model=model, **given)
    told = {"username": user.username, "user": str(user.pk), "client_name": "Claude", "client_id": "client-1"}
    record = request.mcp.record
    facts = {
        "rows_changed": record.rows_changed,
        "id": record.id,
        "session": session,
        "outcome": record.outcome or "ok",
    }
    keys = {"keys": record.keys}
    log(timedelta(hours=hours), tool=f"{deed}_record", model=model, writes=True, **facts, **told, **keys)
    return done.get("change")


def rename(user: Any, author: Author, name: str = "Ida", **given: Any) -> Any:
    return write(user, "update", "testapp.author", pk=str(author.pk), values={"name": name}, **given)


def confirm(user: Any, tool: str, **given: Any) -> None:
    """Write what asks first as a client does that confirms it."""
    client = MCPClient(user)
    preview = client.call(tool, **given).structured
    assert "change" in client.call(tool, **given, confirm_token=preview["confirm_token"]).structured


def page_of(browser: Client, query: str = "", **values: str) -> str:
    response = browser.get(url("changes"), {"q": query, **values})
    assert response.status_code == 200
    return response.text


def text_of(browser: Client, query: str = "", **values: str) -> str:
    """The text of the page's list."""
    listed = page_of(browser, query, **values).partition('class="mcp-go"')[2].partition("<footer")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", listed)).split())


# What is told


def test_a_change_is_told_row_by_row_with_its_links(admin: Client, ann: User) -> None:
    author = make_author("Frank")
    number = rename(ann, author)
    assert "update_record testapp.author ann , Claude Rows changed: 1 changed Author Ida" in text_of(admin)
    assert "Field Before After name Frank Ida Take back" in text_of(admin)
    page = page_of(admin)
    assert f'<a href="/admin/testapp/author/{author.pk}/change/"><bdi>Ida</bdi></a>' in page
    assert f'<a href="{CALLS}{CallEntry.objects.get().pk}/change/">' in page
    assert f"?change={number}&amp;back=" in page


def test_choices_related_rows_and_new_rows_are_in_words(admin: Client, ann: User) -> None:
    book = make_book("Dune", author=make_author("Frank"))
    values = {"status": "published", "author": make_author("Ida").pk}
    write(ann, "update", "testapp.book", pk=str(book.pk), values=values)
    write(ann, "create", "testapp.tag", values={"name": "sand"})
    text = text_of(admin)
    assert "author Frank Ida" in text
    assert "status In preparation Published" in text
    assert "added Tag sand Field Value name sand" in text


def test_writes_are_listed_in_order_whether_or_not_they_are_kept(admin: Client, ann: User, settings: Any) -> None:
    author = make_author("Frank")
    rename(ann, author, "Ida", hours=3)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "UNDO_DAYS": 0}
    rename(ann, author, "Zoe", hours=2)
    assert "set UNDO_DAYS" in page_of(admin)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "UNDO_DAYS": 30}
    rename(ann, author, "Eva", hours=1)
    log(tool="query_records", rows_read=3)
    text = text_of(admin)
    assert text.index("name Zoe Eva") < text.index(NO_VALUES) < text.index("name Frank Ida")
    assert text.count("_record") == 3
    # Without values, a line has at least the row's key.
    assert f"update_record testapp.author {author.pk} ann" in text


def test_what_was_only_tried_changed_nothing(admin: Client, ann: User) -> None:
    author = make_author("Frank")
    write(ann, "update", "testapp.author", pk=str(author.pk), values={"name": "Ida"}, dry_run=True)
    assert CallEntry.objects.get().rows_changed == 1
    assert "update_record" not in text_of(admin)
    assert "No call has changed anything yet." in text_of(admin)


def test_many_rows_of_one_call_are_named_and_the_rest_counted(admin: Client, ann: User, call_log: Any) -> None:
    for number in range(23):
        make_author(f"A{number:02}", born="2000-01-01")
    values = {"email": "a@b.example"}
    confirm(ann, "update_record", model="testapp.author", filters={"born": "2000-01-01"}, values=values)
    call_log()
    text = text_of(admin)
    # The question changed nothing.
    assert text.count("update_record") == 1
    assert "Rows changed: 23" in text
    assert text.count("email - a@b.example") == 20
    assert "More rows: 3" in text


@pytest.mark.parametrize("how", ["pks", "filters"])
def test_deleted_rows_are_named(admin: Client, ann: User, call_log: Any, how: str) -> None:
    keys = [Tag.objects.create(name=name).pk for name in ("salt", "sand")]
    given = {"pks": list(map(str, keys))} if how == "pks" else {"filters": {"id__in": keys}}
    confirm(ann, "delete_record", model="testapp.tag", **given)
    call_log()
    text = text_of(admin)
    assert "deleted Tag salt" in text
    assert "deleted Tag sand" in text


def test_what_was_not_kept_field_by_field_is_said_so(admin: Client, ann: User) -> None:
    book = make_book("Dune")
    tag = Tag.objects.create(name="sand")
    write(ann, "update", "testapp.book", pk=str(book.pk), values={"tags": [tag.pk]})
    assert "changed Book Dune What changed in it is not listed. Take back" in text_of(admin)


def test_what_an_action_did_is_a_line(admin: Client, ann: User, call_log: Any) -> None:
    book = make_book("Dune")
    assert not MCPClient(ann).call("withdraw_testapp_book", pks=[str(book.pk)]).is_error
    call_log()
    text = text_of(admin)
    assert "withdraw_testapp_book testapp.book" in text
    assert "Rows changed: 1" in text


def test_what_a_person_approved_is_a_line_of_the_call_that_did_it(admin: Client, ann: User, call_log: Any) -> None:
    book = make_book(price="9.90")
    approval = ask(
        ann, "update_record", model="testapp.book", filters={"id": book.pk}, values={"price": "20.00"}, rows=[book]
    )
    # Whoever approves has signed in just now.
    browser = Client()
    browser.force_login(make_user("zoe", PERMISSION, "testapp.view_book"))
    browser.post(f"{url('approvals')}?request={approval.pk}", {"request": approval.pk, "yes": "1"})
    assert ApprovalQueue(ann).state_of(type(approval).objects.get(pk=approval.pk)) == "done"
    call_log()
    assert "price 9.90 20.00" in text_of(admin)


# Whose eyes


def test_others_changes_need_the_permission_to_view_changes(browser_of: Callable[..., Client], ann: User) -> None:
    rename(ann, make_author("Frank"))
    bob = browser_of("bob", "mcp_django.view_callentry", "testapp.view_author")
    text = text_of(bob)
    assert "Rows changed: 1" in text
    assert not {"Frank", "Ida"} & set(text.split())
    assert "you need the permission" in page_of(bob)
    assert browser_of("cyd", "mcp_django.view_change").get(url("changes")).status_code == 403


def test_one_s_own_changes_need_no_permission_but_those_of_their_rows(browser_of: Callable[..., Client]) -> None:
    browser = browser_of("bob", "mcp_django.view_callentry", "testapp.view_author", "testapp.change_author")
    rename(User.objects.get(username="bob"), make_author("Frank"))
    assert "name Frank Ida Take back" in text_of(browser)
    User.objects.get(username="bob").user_permissions.filter(codename__endswith="_author").delete()
    text = text_of(browser)
    assert "Frank" not in text
    assert "Rows that you may not see: 1" in text


def test_a_model_that_the_reader_may_not_view_is_not_told(reader_with: Callable[..., Client], ann: User) -> None:
    rename(ann, make_author("Frank"))
    text = text_of(reader_with())
    assert "Rows that you may not see: 1" in text
    assert not {"Frank", "Ida", "name", "back"} & set(text.split())


def test_a_row_outside_of_the_reader_s_queryset_is_not_told(reader_with: Callable[..., Client], ann: User) -> None:
    book = make_book("Secret plans", owner=ann)
    mine = make_book("Cookbook")
    for each in (book, mine):
        write(ann, "update", "testapp.book", pk=str(each.pk), values={"pages": 7, "title": f"{each.title} II"})
    text = text_of(reader_with("testapp.view_book"))
    assert "Cookbook II" in text
    assert "Secret" not in text
    assert "Rows that you may not see: 1" in text


def test_the_related_row_of_a_value_has_to_be_seen_too(reader_with: Callable[..., Client], ann: User) -> None:
    book = make_book("Dune", author=make_author("Frank"))
    write(ann, "update", "testapp.book", pk=str(book.pk), values={"author": make_author("Ida").pk, "pages": 7})
    text = text_of(reader_with("testapp.view_book"))
    assert "pages 0 7" in text
    assert "Fields that you may not see: 1" in text
    assert not {"Frank", "Ida"} & set(text.split())


class Narrow(ModelExposure):
    """Shows e-mail addresses to superusers alone."""

    def get_fields(self, request: Any, obj: Any = None) -> list[str]:
        return ["id", "name", *(["email"] if request.user.is_superuser else [])]


class Own(ModelExposure):
    """Shows the rows to whoever is their author, and all of them to superusers."""

    fields = ["id", "name", "email"]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        return rows if request.user.is_superuser else rows.filter(name=request.user.username)


class Masking(serializers.ModelSerializer):
    name = serializers.SerializerMethodField()

    class Meta:
        model = Author
        fields = ["id", "name", "email"]

    def get_name(self, author: Author) -> str:
        return author.name if self.context["request"].user.is_superuser else "***"


class Whole(serializers.ModelSerializer):
    class Meta:
        model = Author
        fields = ["id", "name", "email"]

    def to_representation(self, instance: Author) -> dict[str, Any]:
        shown = super().to_representation(instance)
        return shown if self.context["request"].user.is_superuser else {**shown, "email": "***"}


def site_of(monkeypatch: pytest.MonkeyPatch, exposure: type[ModelExposure] = ModelExposure, **options: Any) -> MCPSite:
    """A site that the console knows, with authors, whose page in the admin has no e-mail address."""
    site = MCPSite()
    site.register(Author, exposure, **options)
    monkeypatch.setattr(known_sites, "known_sites", lambda: {site.name: site})
    monkeypatch.setattr(AuthorAdmin, "exclude", ["email", "name"])
    return site


def test_a_column_that_the_reader_may_not_see_is_not_told(
    reader_with: Callable[..., Client], admin: Client, ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(monkeypatch, Narrow)
    values = {"name": "Ida", "email": "ida@secret.example"}
    write(ann, "update", "testapp.author", site=site, pk=str(make_author("Frank").pk), values=values)
    text = text_of(reader_with("testapp.view_author"))
    assert "name Frank Ida" in text
    assert "Fields that you may not see: 1" in text
    assert not {"ida@secret.example", "email"} & set(text.split())
    assert "email - ida@secret.example" in text_of(admin)


@pytest.mark.parametrize(("serializer", "hidden"), [(Masking, "Ida"), (Whole, "ida@secret.example")])
def test_a_value_that_is_masked_for_the_reader_is_not_told(
    reader_with: Callable[..., Client], ann: User, monkeypatch: pytest.MonkeyPatch, serializer: Any, hidden: str
) -> None:
    site = site_of(monkeypatch, serializer_class=serializer, fields=None)
    author = make_author("Ida", email="ida@secret.example")
    request = request_of(ann, site)
    # What a client of a superuser was told, by whatever tool.
    row = {"model": "testapp.author", "pk": author.pk, "label": "x"}
    row["changed"] = {"name": ["Frank", "Ida"], "email": ["", "ida@secret.example"]}
    from mcp_django.differences.kept_changes import Changes

    Changes(request).keep(using="default", tool="t", labels=["testapp.author"], rows=1, summary="", shown=[row])
    entry = log(tool="t", writes=True, rows_changed=1)
    Change.objects.update(call=entry.call_id)
    text = text_of(reader_with("testapp.view_author"))
    assert "Fields that you may not see" in text
    assert f" {hidden} Fields" not in text.partition("Before")[2]
    mine = Client()
    mine.force_login(ann)
    assert hidden in text_of(mine).partition("Before")[2]


@pytest.mark.parametrize("value", [[1, 2], [None, {"id": 2, "name": "Ida"}], ["Frank", "Ida"], [[1], [2]]])
@pytest.mark.parametrize("name", ["author", "tags"])
def test_related_rows_are_read_in_any_form_that_a_serializer_gives_them(
    reader_with: Callable[..., Client], ann: User, value: Any, name: str
) -> None:
    book = make_book("Dune", author=make_author("Frank"))
    row = {"model": "testapp.book", "pk": book.pk, "label": "x", "changed": {name: value, "title": ["Old", "Dune"]}}
    from mcp_django.differences.kept_changes import Changes

    request = request_of(ann)
    Changes(request).keep(using="default", tool="t", labels=["testapp.book"], rows=1, summary="", shown=[row])
    Change.objects.update(call=log(tool="t", writes=True, rows_changed=1).call_id)
    mine = Client()
    mine.force_login(ann)
    for browser in (mine, reader_with("testapp.view_book")):
        assert "title Old Dune" in text_of(browser)


def test_of_a_row_that_is_gone_those_know_who_would_see_any(
    browser_of: Callable[..., Client], ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(monkeypatch, Own)
    author = make_author("bob")
    rename(ann, author, "zoe", site=site, hours=2)
    request = request_of(ann, site)
    preview = call(TOOLS["delete"], request, model="testapp.author", pk=str(author.pk))
    write(ann, "delete", "testapp.author", site=site, pk=str(author.pk), confirm_token=preview["confirm_token"])
    mine = Client()
    mine.force_login(ann)
    assert "deleted Author zoe" in text_of(mine)
    assert "name bob zoe" in text_of(mine)
    bob = browser_of("bob", *READER, "testapp.view_author")
    text = text_of(bob)
    assert text.count("Rows that you may not see: 1") == 2
    assert "zoe" not in text


def test_where_the_page_of_a_row_decides_on_its_columns_superusers_see_those_of_one_that_is_gone(
    reader_with: Callable[..., Client], admin: Client, ann: User
) -> None:
    book = make_book("Dune")
    write(ann, "update", "testapp.book", pk=str(book.pk), values={"pages": 7})
    reader = reader_with("testapp.view_book")
    assert "pages 0 7" in text_of(reader)
    book.delete()
    assert "Rows that you may not see: 1" in text_of(reader)
    assert "pages 0 7" in text_of(admin)


def test_a_related_row_that_is_gone_is_told_to_those_who_would_see_any(admin: Client, ann: User) -> None:
    old = make_author("Frank")
    book = make_book("Dune", author=old)
    write(ann, "update", "testapp.book", pk=str(book.pk), values={"author": make_author("Ida").pk})
    old.delete()
    assert "author Frank Ida" in text_of(admin)


def test_a_row_is_called_as_it_is_called_now(admin: Client, ann: User) -> None:
    author = make_author("Frank")
    write(ann, "update", "testapp.author", pk=str(author.pk), values={"email": "a@b.example"})
    Author.objects.update(name="Renamed")
    assert "changed Author Renamed" in text_of(admin)


def test_a_row_that_the_reader_may_not_open_has_no_link(
    reader_with: Callable[..., Client], ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename(ann, make_author("Frank"), site=site_of(monkeypatch, fields=["id", "name"]))
    browser = reader_with("testapp.view_author")
    link = f'<a href="/admin/testapp/author/{Author.objects.get().pk}/change/'
    assert link in page_of(browser)
    monkeypatch.setattr(AuthorAdmin, "has_view_permission", lambda self, request, obj=None: obj is None)
    assert "name Frank Ida" in text_of(browser)
    assert link not in page_of(browser)


class Asking(ModelExposure):
    """Code decides on the permission, and could do so by the row."""

    fields = ["id", "name"]

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return super().has_view_permission(request, obj) and (obj is None or obj.name != "Secret")


@pytest.mark.parametrize(("exposure", "told"), [(Asking, "Rows"), (Narrow, "Fields")])
def test_where_code_decides_by_the_row_one_that_is_gone_is_not_told(
    reader_with: Callable[..., Client], ann: User, monkeypatch: pytest.MonkeyPatch, exposure: Any, told: str
) -> None:
    author = make_author("Frank")
    rename(ann, author, site=site_of(monkeypatch, exposure))
    browser = reader_with("testapp.view_author")
    assert "name Frank Ida" in text_of(browser)
    author.delete()
    text = text_of(browser)
    assert f"{told} that you may not see: 1" in text
    assert "Frank" not in text


def test_each_change_is_seen_as_at_its_own_endpoint(
    reader_with: Callable[..., Client], ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, narrow = MCPSite("wide"), MCPSite("narrow")
    wide.register(Author, ModelExposure, fields=["id", "name", "email"])
    narrow.register(Author, Own)
    monkeypatch.setattr(known_sites, "known_sites", lambda: {site.name: site for site in (narrow, wide)})
    author = make_author("Frank")
    rename(ann, author, "Ida", site=wide)
    rename(ann, author, "Zoe", site=narrow)
    browser = reader_with("testapp.view_author")
    text = text_of(browser)
    assert "name Frank Ida" in text
    assert "Rows that you may not see: 1" in text
    assert "name Ida Zoe" not in text
    # What middleware finds out for calls, nobody knows here.
    monkeypatch.setattr(wide, "needs_middleware", True)
    assert text_of(browser).count("Rows that you may not see: 1") == 2


def test_a_model_or_an_endpoint_that_is_no_longer_there_is_not_told(admin: Client, ann: User) -> None:
    rename(ann, make_author("Frank"))
    Change.objects.update(site="gone")
    assert "Rows that you may not see: 1" in text_of(admin)
    rename(ann, make_author("Frank"))
    kept = Change.objects.latest("pk")
    from mcp_django.differences.kept_changes import sealed

    shown = [{"model": "testapp.gone", "pk": 1, "label": "Secret", "changed": {"a": [1, 2]}}]
    Change.objects.filter(pk=kept.pk).update(shown=sealed("shown", shown))
    assert text_of(admin).count("Rows that you may not see: 1") == 2
    assert "Secret" not in text_of(admin)


def test_values_of_the_data_are_no_markup(admin: Client, ann: User) -> None:
    rename(ann, make_author("Frank"), EVIL)
    page = page_of(admin)
    assert "<img" not in page
    assert "\u202e" not in page
    assert "&lt;img src=x" in page


# What became of it


def test_what_was_taken_back_says_so_and_so_does_taking_it_back(admin: Client, ann: User, call_log: Any) -> None:
    author = make_author("Frank")
    number = rename(ann, author)
    shown = admin.get(f"{url('undo')}?change={number}")
    admin.post(url("undo"), {"change": number, "pin": shown.context["pin"]})
    call_log()
    text = text_of(admin)
    assert f"Change {number} is taken back." in text
    assert "name Frank Ida taken back" in text
    assert text.index("undo_change") < text.index("update_record")


def test_what_can_no_longer_be_taken_back_says_why_and_what_is_deleted_stays_a_line(admin: Client, ann: User) -> None:
    rename(ann, make_author("Frank"))
    Change.objects.update(expires=timezone.now() - timedelta(minutes=1))
    assert "It could be taken back for 30 days." in text_of(admin)
    Change.objects.update(time=timezone.now() - timedelta(days=40))
    KeptChange.clear_expired()
    assert not Change.objects.exists()
    text = text_of(admin)
    assert "Rows changed: 1" in text
    assert NO_VALUES in text


def test_what_was_sealed_with_a_lost_key_stays_a_line(admin: Client, ann: User) -> None:
    rename(ann, make_author("Frank"))
    Change.objects.update(shown=b"sealed with another key")
    assert NO_VALUES in text_of(admin)


# The query


def test_the_query_is_the_console_s(admin: Client, ann: User) -> None:
    author = make_author("Frank")
    other = make_superuser("bob")
    today = timezone.localtime().hour + timezone.localtime().minute / 60
    rename(ann, author, "Before", hours=today + 1, session="a" * 32)
    rename(other, author, "Later", session="b" * 32)
    write(other, "create", "testapp.tag", values={"name": "sand"})
    for query, found in {
        "user:ann": ["Before"],
        "user:bob": ["sand", "Later"],
        "user:ann yesterday": ["Before"],
        "user:ann today": [],
        "model:testapp.author": ["Later", "Before"],
        f"model:testapp.author row:{author.pk} user:bob": ["Later"],
        f"session:{'a' * 32}": ["Before"],
        "client:Claude writes": ["sand", "Later", "Before"],
        "client:Codex": [],
        "nonsense!": [],
    }.items():
        after = re.findall(r"name \w+ (\w+) Take|name (sand) Take", text_of(admin, query))
        assert ["".join(pair) for pair in after] == found, query
    assert "This is not a time" in page_of(admin, "nonsense!")
    assert "No call changed anything that matches all of this." in text_of(admin, "client:Codex")


def test_the_page_leads_to_times_callers_and_the_calls(admin: Client, ann: User) -> None:
    rename(ann, make_author("Frank"))
    rename(make_superuser("bob"), make_author("Frank"))
    page = page_of(admin, "model:testapp.author")
    assert 'href="?q=model%3Atestapp.author+yesterday"' in page
    assert 'href="?q=model%3Atestapp.author+user%3Aann"' in page
    assert f'href="{CALLS}?q=model%3Atestapp.author+writes"' in page
    # All are of this model and client.
    assert "client%3AClaude" not in page


def test_pages_lead_to_older_changes(admin: Client, ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_page, "LISTED", 2)
    author = make_author("Frank")
    for number in range(3):
        rename(ann, author, f"N{number}", hours=3 - number)
    assert "Frank N0" not in text_of(admin)
    assert "Frank N0" in text_of(admin, p="2")
    assert 'rel="next"' in page_of(admin)


@pytest.mark.parametrize("query", ["", "user:ann", "user:ann yesterday", "since 2020-01-01"])
def test_only_the_newest_calls_are_searched_until_asked_for_more(
    admin: Client, ann: User, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    author = make_author("Frank")
    rename(ann, author, "Old", hours=30)
    for hours in range(8):
        log(timedelta(hours=25 + hours / 10), tool="update_record", writes=True, username="ann", user=str(ann.pk))
    for module in (changes_page, call_query):
        monkeypatch.setattr(module, "LOOKED_THROUGH", 4)
    seen = []
    page = page_of(admin, query)
    while "Frank" not in page and (found := re.search(r'<a href="\?q=([^"]+)">Look further back', page)):
        seen.append(found[1])
        page = admin.get(f"{url('changes')}?q={html.unescape(found[1])}").text
    assert seen
    assert "Frank" in page


# What it costs


def test_the_number_of_queries_does_not_grow_with_the_lines(
    reader_with: Callable[..., Client], ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_page, "LISTED", 50)
    browser = reader_with("testapp.view_book", "testapp.view_author", "testapp.view_tag")

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            page_of(browser)
        return len(found)

    def more(number: int) -> None:
        for _ in range(number):
            book = make_book()
            gone = make_author("Gone")
            write(ann, "update", "testapp.book", pk=str(book.pk), values={"author": make_author("Ida").pk})
            write(ann, "create", "testapp.tag", values={"name": f"tag {Tag.objects.count()}"})
            rename(ann, gone)
            gone.delete()

    more(1)
    few = queries()
    more(9)
    assert text_of(browser).count("Rows changed: 1") == 30
    assert queries() == few


@pytest.mark.skipif(connection.vendor != "sqlite", reason="explains as SQLite does")
@pytest.mark.parametrize("query", ["", "user:ann", "client:Claude yesterday", "model:testapp.author row:17"])
def test_each_query_of_the_app_s_tables_goes_by_an_index(admin: Client, ann: User, query: str) -> None:
    rename(ann, make_author("Frank"))
    with CaptureQueriesContext(connection) as found:
        page_of(admin, query)
    own = re.compile('FROM "mcp_django_change"|"rows_changed" > 0|OFFSET 5000')
    asked = [each["sql"] for each in found if own.search(each["sql"]) and not each["sql"].startswith("SELECT (")]
    # The lines, their number, what is proposed of them, and their changes.
    assert len(asked) >= 3
    for sql in asked:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}".replace("%", "%%"))
            plan = [row[3] for row in cursor.fetchall()]
        assert not [step for step in plan if re.match(r"SCAN mcp_django_\w+(?! USING)$", step)], (sql, plan)


# Where it is off


def test_without_a_log_the_page_says_what_to_turn_on(admin: Client, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": False, "UNDO_DAYS": 0}
    page = page_of(admin)
    assert "remove CALL_LOG: False" in page
    assert "set UNDO_DAYS" in page


# Ways to it


def test_other_pages_lead_to_it(admin: Client, ann: User) -> None:
    author = make_author("Frank")
    rename(ann, author, session="a" * 32)
    entry = CallEntry.objects.get()
    changes = url("changes")
    ways = {
        url("overview"): f"{changes}?q=yesterday",
        f"{url('overview')}?q=user:ann+last+7d": f"{changes}?q=user%3Aann+yesterday",
        f"{url('clients')}?client=client-1": f"{changes}?q=client%3Aclient-1",
        f"{CALLS}?q=writes": f"{changes}?q=writes",
        f"{url('conversations')}?call={entry.pk}": f"{changes}?q=session%3A{'a' * 32}",
        f"/admin/testapp/author/{author.pk}/history/": f"{changes}?q=model%3Atestapp.author+row%3A{author.pk}",
    }
    for page, link in ways.items():
        assert f'href="{link}' in admin.get(page).text, page
    assert changes not in admin.get(f"{CALLS}?q=failed").text.partition("mcp-found")[2]


def test_a_conversation_without_a_session_leads_to_its_time(admin: Client, ann: User) -> None:
    author = make_author("Frank")
    rename(ann, author, "Long ago", hours=50)
    rename(ann, author, "Now")
    page = admin.get(f"{url('conversations')}?call={CallEntry.objects.latest('time').pk}").text
    [link] = re.findall(rf'href="({url("changes")}\?q=[^"]+)"', page)
    text = " ".join(admin.get(html.unescape(link)).text.split())
    assert "Now" in text
    assert "Frank" not in text


def test_a_book_s_change_is_told_without_the_permission_to_view_authors(
    reader_with: Callable[..., Client], ann: User
) -> None:
    book = make_book("Dune")
    write(ann, "update", "testapp.book", pk=str(book.pk), values={"pages": 7})
    assert Book.objects.get().pages == 7
    assert "pages 0 7" in text_of(reader_with("testapp.view_book"))
