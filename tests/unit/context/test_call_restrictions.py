"""Calls that are narrowed, by their token or by their address: what is left out is as if it were not permitted."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.contenttypes.models import ContentType

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.call_restrictions import Narrowing, NarrowingQuery, UnreadableAddress
from mcp_django.context.request import MCPRequest
from mcp_django.differences.change_model import Change
from mcp_django.emulation.inline_rows import PageInlines
from mcp_django.oauth.resource_urls import resource_url
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.orm.access import access_of
from mcp_django.signin import SignIn
from mcp_django.subscriptions.subscribers import Subscriber, subscriber_key
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Profile, Tag
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

ALL = tuple(f"testapp.{verb}_{name}" for verb in ("view", "add", "change", "delete") for name in ("book", "tag"))


def at(address: str, user: Any, **options: Any) -> MCPClient:
    client = MCPClient(user, **options)
    client.path = f"/mcp?{address}"
    return client


# What is read


def test_what_cannot_be_read_leaves_nothing() -> None:
    for kept in ("shop", ["shop"], 1, {"models": "shop"}, {"models": {"shop": 1}}):
        found = Narrowing.of({Narrowing.FACT: kept})
        assert found is not None
        assert not found.admits(Book)
    assert Narrowing.of({}) is None


def test_the_address_narrows_what_the_token_is_for() -> None:
    kept = Narrowing.fact(["testapp.book", "auth"])
    found = Narrowing.of(NarrowingQuery("models=testapp,auth.user").facts(kept))
    assert found == Narrowing(frozenset({"testapp.book", "auth.user"}), named=("testapp", "auth.user"))
    apart = Narrowing.of(NarrowingQuery("models=admin").facts(kept))
    assert apart is not None
    assert apart.labels == frozenset()


def test_an_address_does_not_let_go_of_read_only() -> None:
    kept = {Narrowing.FACT: {"read_only": True}}
    found = Narrowing.of(NarrowingQuery("read_only=0").facts(kept))
    assert found is not None
    assert found.read_only
    assert NarrowingQuery("other=1").facts(kept) is kept


@pytest.mark.parametrize(
    "query",
    "models= models=a,,b models=a.b.c models=a;b models=* models=a%00 model=shop Models=shop read_only= "
    "read_only=yes readonly=1 read-only=1 READ_ONLY=1".split(),
)
def test_a_query_that_cannot_be_meant_is_refused(query: str) -> None:
    with pytest.raises(UnreadableAddress):
        NarrowingQuery(query).facts({})


def test_a_call_is_restricted_to_labels_of_apps_and_models_and_not_too_many() -> None:
    assert Narrowing.can_name(["shop", "shop.order"])
    assert not Narrowing.can_name(["shop", "Shop.Order"])
    assert not Narrowing.can_name(["shop"] * 1_001)


def test_a_query_that_has_other_parameters_does_more_than_narrow() -> None:
    assert NarrowingQuery("read_only=1&models=").only_narrows
    assert not NarrowingQuery("read_only=1&other=").only_narrows


def test_only_what_narrows_is_kept_of_a_query() -> None:
    assert NarrowingQuery("session_id=x&models=shop.order&read_only=1&a=b").kept() == "models=shop.order&read_only=1"
    assert NarrowingQuery("session_id=x").kept() == ""


def test_a_model_goes_with_its_app() -> None:
    assert Narrowing.fact(["shop", "shop.order", "auth.user"]) == {Narrowing.FACT: {"models": ["auth.user", "shop"]}}


# The user


def narrowed(user: Any, *labels: str) -> Any:
    request = SimpleNamespace(user=user, mcp=SimpleNamespace(facts={Narrowing.FACT: {"models": list(labels)}}))
    Narrowing.apply(request)
    return request.user


def test_a_superuser_has_no_permission_for_what_is_left_out() -> None:
    root = make_superuser()
    found = narrowed(root, "testapp.book")
    assert found.has_perm("testapp.delete_book")
    assert found.has_perm("testapp.publish_book")
    assert found.has_perms(["testapp.view_book", "testapp.change_book"])
    assert not found.has_perm("testapp.view_author")
    assert not found.has_perms(["testapp.view_book", "auth.view_user"])
    assert found.has_module_perms("testapp")
    assert not found.has_module_perms("auth")
    assert "testapp.view_book" in found.get_all_permissions()
    assert not any(name.startswith("auth.") for name in found.get_all_permissions())
    # Nobody else's.
    assert root.has_perm("testapp.view_author")


@pytest.mark.parametrize("name", ["ahas_perm", "ahas_module_perms", "aget_all_permissions"])
def test_permissions_that_are_asked_for_without_waiting_are_narrowed_too(name: str) -> None:
    found = narrowed(make_superuser(), "testapp.book")
    if name == "aget_all_permissions":

        async def listed() -> set[str]:
            return set(await found.aget_all_permissions())

        assert "auth.view_user" not in async_to_sync(listed)()
        return
    asked, denied = ("testapp.view_book", "auth.view_user") if name == "ahas_perm" else ("testapp", "auth")

    async def answers() -> tuple[bool, bool]:
        return await getattr(found, name)(asked), await getattr(found, name)(denied)

    assert async_to_sync(answers)() == (True, False)


def test_nobody_in_particular_can_be_narrowed() -> None:
    assert not narrowed(AnonymousUser(), "testapp").has_perm("auth.view_user")


def test_no_field_of_the_user_is_another_one() -> None:
    root = make_superuser()
    found = narrowed(root, "testapp.book")
    found.save()
    root.refresh_from_db()
    assert root.is_superuser


# Hooks of the project


class Open(ModelExposure):
    """Anybody may see and do everything, whatever Django's permissions are."""

    actions = ("shout",)

    def shout(self, request: MCPRequest, queryset: Any) -> str:
        return "!"

    def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
        return True

    has_change_permission = has_delete_permission = has_view_permission

    def has_add_permission(self, request: MCPRequest) -> bool:
        return True


class Mixin:
    def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
        return True


class Mixed(Mixin, ModelExposure):
    """As above, by a class that is no exposure."""


@pytest.mark.parametrize("kind", [Open, Mixed])
def test_hooks_of_the_project_do_not_widen_it(kind: type[ModelExposure]) -> None:
    site = MCPSite("open")
    site.register(Author, kind)
    site.register(Book, kind)
    request = request_of(make_user("guest"), site)
    request.mcp.facts = {Narrowing.FACT: {"models": ["testapp.book"]}}
    SignIn(request).act_as(request.user, frozenset({"mcp:read", "mcp:write"}))
    assert [exposure.label for exposure in access_of(request).exposures] == ["testapp.book"]
    author, book = (access_of(request)[site.exposures[model]] for model in (Author, Book))
    assert book.may("view")
    assert not author.may("view")
    assert not author.may_row("change", make_author())
    assert not author.may("add")
    assert not author.permitted_actions


class OpenInline(admin.StackedInline):
    model = Profile
    fields = ["biography"]

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return True

    has_change_permission = has_add_permission = has_delete_permission = has_view_permission


class OpenAdmin(admin.ModelAdmin):
    inlines = [OpenInline]

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        return True

    has_change_permission = has_view_permission


def test_inlines_of_what_is_left_out_are_not_there() -> None:
    pages = admin.AdminSite("open pages")
    pages.register(Author, OpenAdmin)
    pages.register(Tag, OpenAdmin.__mro__[1])
    site = MCPSite("open pages", admin_site=pages)
    author = make_author()
    request = request_of(make_superuser(), site)
    exposure = site.exposures[Author]
    assert [inline.admin.model for inline in PageInlines(access_of(request)[exposure], author).all] == [Profile]
    assert len(PageInlines(access_of(request)[exposure], author).formsets(author)) == 1
    request.mcp.facts = {Narrowing.FACT: {"models": ["testapp.author"]}}
    SignIn(request).act_as(request.user, request.mcp.scopes)
    assert PageInlines(access_of(request)[exposure], author).all == []
    assert PageInlines(access_of(request)[exposure], author).formsets(author) == []
    assert [found.label for found in access_of(request).exposures] == ["testapp.author"]


# Addresses


def test_an_address_leaves_its_models() -> None:
    client = at("models=testapp.book,testapp.tag", make_superuser())
    found = json.dumps(client.call("list_models").structured)
    assert "testapp.book" in found
    assert "testapp.tag" in found
    assert "testapp.author" not in found
    assert client.call("query_records", model="testapp.author").is_error


def test_read_only_is_as_without_the_write_scope() -> None:
    root = make_superuser()
    client = at("read_only=1", root)
    reading = {tool["name"] for tool in MCPClient(root, scopes=["mcp:read"]).tools()}
    assert {tool["name"] for tool in client.tools()} == reading
    book = make_book("kept")
    with pytest.raises(MCPError):
        client.call("update_record", model="testapp.book", id=str(book.pk), values={"title": "changed"})
    book.refresh_from_db()
    assert book.title == "kept"
    assert len(at("read_only=0", root).tools()) > len(reading)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
@pytest.mark.parametrize(
    "models", ["nothing", "testapp.nothing", "auth.user", "testapp.book,nothing", "testapp.author"]
)
def test_a_client_is_told_that_a_name_leads_nowhere(models: str, version: str) -> None:
    client = at(f"models={models}", make_user("guest", *ALL), version=version)
    answer = client.send("tools/list", {})
    assert answer.status_code == 400
    assert "models in the URL" in answer.json()["error"]["message"]


def test_what_a_caller_may_not_see_is_named_as_what_is_not_there() -> None:
    guest = make_user("guest", *ALL)
    told = [
        at(f"models={name}", guest).send("tools/list", {}).json()["error"]["message"].replace(name, "?")
        for name in ("testapp.author", "testapp.missing")
    ]
    assert told[0] == told[1]


def test_who_has_no_token_is_told_so_first() -> None:
    assert at("models=nothing", None).send("tools/list", {}).status_code == 401
    assert at("models=*", None).send("tools/list", {}).status_code == 401


def test_an_address_that_cannot_be_meant_is_refused() -> None:
    answer = at("readonly=1", make_superuser()).send("tools/list", {})
    assert answer.status_code == 400
    assert "read_only" in answer.json()["error"]["message"]


# Two worlds: a user who lacks a permission, and one who is narrowed


def questions(book: Book) -> list[tuple[str, dict[str, Any]]]:
    about = {"model": "testapp.book"}
    return [
        ("list_models", {}),
        ("describe_model", about),
        ("describe_model", {"model": "testapp.author"}),
        ("query_records", about),
        ("query_records", {"model": "testapp.author"}),
        ("query_records", {**about, "fields": ["title", "author__name"]}),
        ("query_records", {**about, "filters": {"author__name": "Ann"}}),
        ("query_records", {**about, "filters": {"tags": {"some": {"name": "a"}}}}),
        ("query_records", {**about, "ordering": ["author__name"]}),
        ("query_records", {**about, "search": "Ann"}),
        ("aggregate_records", {**about, "group_by": ["author__name"]}),
        ("aggregate_records", {**about, "group_by": ["author"]}),
        ("aggregate_records", {"model": "testapp.author"}),
        ("get_record", {**about, "id": str(book.pk)}),
        ("get_record", {"model": "testapp.author", "id": str(book.author_id)}),
        ("update_record", {**about, "id": str(book.pk), "values": {"author": str(book.author_id)}}),
        ("delete_record", {"model": "testapp.author", "id": str(book.author_id)}),
        ("query_records", {"model": "admin.logentry"}),
        ("aggregate_records", {"model": "admin.logentry", "group_by": ["model"]}),
        ("run_action", {"model": "testapp.author", "action": "nothing", "ids": [str(book.author_id)]}),
    ]


def by_token(user: Any, *labels: str) -> MCPClient:
    """A client whose token is for these models alone."""
    client = MCPClient(user)
    facts = Narrowing.fact(labels)
    token = issue_token(user, scopes=["mcp:read", "mcp:write"], resource=resource_url(None, "/mcp"), facts=facts)
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def test_an_address_does_not_widen_a_token() -> None:
    client = by_token(make_superuser(), "testapp.book")
    client.path = "/mcp?models=testapp"
    assert "testapp.author" not in json.dumps(client.call("list_models").structured)
    client.path = "/mcp?models=testapp.author"
    assert client.send("tools/list", {}).status_code == 400


@pytest.mark.parametrize("way", ["address", "token"])
def test_an_excluded_model_answers_like_one_that_the_user_may_not_view(way: str) -> None:
    book = make_book("one", author=make_author("Ann"))
    root = make_superuser()
    for row in (book, book.author):
        LogEntry.objects.create(
            user=root,
            content_type=ContentType.objects.get_for_model(row),
            object_id=str(row.pk),
            object_repr="as it was",
            action_flag=CHANGE,
            change_message="by hand",
        )
    lacking = make_user("lacking", *ALL)
    whole = make_user("whole", *ALL, *(f"testapp.{verb}_author" for verb in ("view", "add", "change", "delete")))
    labels = ("testapp.book", "testapp.tag", "admin")
    without = MCPClient(lacking)
    narrow_one = at(f"models={','.join(labels)}", whole) if way == "address" else by_token(whole, *labels)
    wide = MCPClient(whole)
    names = lambda client: [tool["name"] for tool in client.tools()]  # noqa: E731
    assert names(narrow_one) == names(without)
    differs = 0
    for tool, arguments in questions(book):
        told, other, all_of_it = (
            client.send("tools/call", {"name": tool, "arguments": arguments}).json()
            for client in (without, narrow_one, wide)
        )
        told.pop("id"), other.pop("id"), all_of_it.pop("id")
        assert other == told, (tool, arguments)
        differs += all_of_it != told
    assert differs > 8
    for method, params in (
        ("resources/list", {}),
        ("resources/templates/list", {}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": "django://{app_label}/{model}"},
                "argument": {"name": "model", "value": "a"},
            },
        ),
    ):
        told, other = (client.send(method, params).json() for client in (without, narrow_one))
        told.pop("id"), other.pop("id")
        assert other == told


def test_a_subscriber_hears_of_what_is_left_alone() -> None:
    root = make_superuser()
    request = request_of(root)
    request.mcp.facts = NarrowingQuery("models=testapp.book&read_only=1").facts({})
    SignIn(request).act_as(root, request.mcp.scopes)
    caller = Subscriber(request)
    later = caller.request(User.objects.get())
    assert [exposure.label for exposure in access_of(later).exposures] == ["testapp.book"]
    assert "mcp:write" not in later.mcp.scopes
    assert subscriber_key(later) != subscriber_key(request_of(root))


def test_a_narrowed_call_that_lacks_a_scope_names_all_that_the_token_has(tools: Any) -> None:
    def audit(request: MCPRequest) -> str:
        """Audit."""
        return "done"

    tools(audit, read_only=True, scopes={"mcp:admin"})
    answer = at("read_only=1", make_superuser()).send("tools/call", {"name": "audit", "arguments": {}})
    assert answer.status_code == 403
    assert 'scope="mcp:read mcp:write mcp:admin"' in answer["WWW-Authenticate"]


# The rules, one by one


@pytest.mark.parametrize(("labels", "admitted"), [(["testapp.book", "testapp.tag"], True), (["testapp.book"], False)])
def test_a_table_of_links_is_admitted_with_both_of_its_models(labels: list[str], admitted: bool) -> None:
    assert Narrowing(frozenset(labels)).admits(Book.tags.through) is admitted


def test_an_app_brings_the_permissions_of_its_models() -> None:
    user = narrowed(make_superuser(), "testapp")
    assert user.has_perm("testapp.view_author")
    assert not user.has_perm("auth.view_user")
    assert Narrowing(read_only=True).admits_permission("auth.view_user")


def test_a_token_without_a_restriction_narrows_nothing() -> None:
    user = make_superuser()
    request = SimpleNamespace(user=user, mcp=SimpleNamespace(facts={}, narrowing=None))
    Narrowing.apply(request)
    assert request.user is user
    assert request.mcp.narrowing is None


def test_a_user_without_some_of_djangos_methods_is_narrowed_in_the_others() -> None:
    class Robot:
        def has_perm(self, name: str) -> bool:
            return True

    robot = narrowed(Robot(), "testapp.book")
    assert robot.has_perm("testapp.view_book")
    assert not robot.has_perm("testapp.view_author")
    assert not hasattr(robot, "has_module_perms")


def test_a_narrowed_call_still_finds_its_own_changes() -> None:
    narrowing = Narrowing(frozenset({"testapp.book"}))
    assert narrowing.admits(Change)
    assert narrowing.admits(Book)
    assert not narrowing.admits(Author)
