from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.db import OperationalError
from django.utils import timezone
from oauth2_provider.models import AccessToken

from mcp_django import MCPSite, ModelExposure
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.subscriptions import notifier
from tests.factories import make_book, make_superuser, make_user
from tests.subscribers import listen, page_of, tell_at_once, uri_of
from tests.testapp.models import Book, Tag

pytestmark = pytest.mark.django_db
RESOURCE = "http://testserver/mcp"
LISTS = ["tools", "prompts", "resources"]


@pytest.fixture
def news(monkeypatch):
    return tell_at_once(monkeypatch)


@pytest.fixture
def look(news):
    def run():
        assert news.process.check() in (None, notifier.EVERY)

    return run


def signed_in(user, scopes=("mcp:read",)):
    row, raw = create_token(user, scopes=scopes, resources=[RESOURCE])
    return row, verify(raw, RESOURCE)[1]


def test_a_round_comes_early_enough_for_five_seconds(news):
    assert news.process.check() is None
    listen(make_superuser())
    assert news.process.check() == notifier.EVERY
    assert notifier.EVERY < 4


# Tokens


def test_who_has_all_that_it_takes_goes_on(look):
    user = make_superuser()
    listener = listen(user, uri_of(make_book()), lists=LISTS, auth=signed_in(user)[1])
    for _ in range(3):
        look()
    assert (listener.ended, listener.told) == ([], [])


def test_a_revoked_token_ends_its_streams_and_no_others(look):
    user = make_superuser()
    (row, auth), (_, other) = signed_in(user), signed_in(user)
    ending, staying = [listen(user, auth=auth) for _ in range(2)], listen(user, auth=other)
    row.revoke()
    look()
    assert [listener.ended for listener in ending] == [["the token is no longer valid"]] * 2
    look()
    assert [listener.ended for listener in ending] == [["the token is no longer valid"]] * 2
    assert staying.ended == []


def test_a_token_that_expires_ends_its_streams(look, monkeypatch, caplog):
    caplog.set_level("INFO", "mcp_django")
    user = make_superuser()
    row, auth = signed_in(user)
    listener = listen(user, auth=auth)
    monkeypatch.setattr("django.utils.timezone.now", lambda: row.expires + timedelta(seconds=1))
    look()
    assert listener.ended == ["the token has expired"]
    assert [record.message for record in caplog.records] == ["A subscription ended: the token has expired"]


@pytest.mark.parametrize(
    "changes",
    [{"expires": datetime(2020, 1, 1, tzinfo=UTC)}, {"scope": "mcp:read"}],
    ids=["earlier end", "fewer scopes"],
)
def test_a_token_that_was_cut_back_ends_its_streams(look, changes):
    user = make_superuser()
    row, auth = signed_in(user, ["mcp:read", "mcp:write"])
    listener = listen(user, auth=auth)
    AccessToken.objects.filter(pk=row.pk).update(**changes)
    look()
    assert listener.ended == ["the token is no longer valid"]


@dataclass(eq=False)
class Own:
    """What an authentication of a project's own might give."""

    expires: object = None
    scopes: frozenset = field(default_factory=frozenset)


@dataclass(eq=False)
class Asked(Own):
    name: str = ""

    @staticmethod
    def still_good(asked):
        return [item for item in asked if item.name == "good"]


def test_of_other_authentications_the_end_and_their_own_word_count(look):
    user = make_superuser()
    auths = [
        None,
        "text",
        Own(),
        Own("never"),
        Own(timezone.now() - timedelta(1)),
        Asked(name="good"),
        Asked(name="bad"),
    ]
    listeners = [listen(user, auth=auth) for auth in auths]
    look()
    assert [bool(listener.ended) for listener in listeners] == [False, False, False, False, True, False, True]


def test_many_tokens_take_a_few_queries(look, django_assert_num_queries):
    users = [make_superuser(f"user{number}") for number in range(10)]
    for user in users:
        listen(user, auth=signed_in(user)[1])
    with django_assert_num_queries(4):
        look()


# Users


@pytest.mark.parametrize("change", ["deactivated", "deleted"])
def test_a_user_who_is_gone_has_no_streams(look, change):
    user = make_user("reader")
    listener, other = listen(user), listen(make_superuser())
    found = User.objects.filter(pk=user.pk)
    if change == "deleted":
        found.delete()
    else:
        found.update(is_active=False)
    look()
    assert listener.ended == ["the account is no longer active"]
    assert other.ended == []


def test_an_anonymous_caller_of_an_open_endpoint_goes_on(look):
    listener = listen(AnonymousUser(), lists=LISTS)
    look()
    assert listener.ended == []


# Permissions


def test_a_lost_permission_ends_the_streams_that_watch_something_of_it(look):
    user = make_user("reader", "testapp.view_book", "testapp.view_tag")
    book, tag = make_book(), Tag.objects.create(name="t")
    uris = [uri_of(book), page_of(Book), f"{page_of(Book)}/schema", uri_of(tag)]
    listeners = [listen(user, uri) for uri in uris]
    look()
    user.user_permissions.remove(Permission.objects.get(codename="view_book"))
    look()
    assert [listener.ended for listener in listeners] == [["a permission was lost"]] * 3 + [[]]


def test_a_permission_lost_before_the_first_round_counts(look):
    user = make_user("reader", "testapp.view_book")
    listener = listen(user, uri_of(make_book()), lists=["tools"])
    user.user_permissions.clear()
    look()
    assert listener.ended == ["a permission was lost"]


def test_a_permission_of_a_group_counts(look):
    group, user = Group.objects.create(name="g"), make_user("reader")
    group.permissions.set(Permission.objects.filter(codename="view_book"))
    user.groups.add(group)
    listener = listen(user, page_of(Book))
    look()
    assert listener.ended == []
    group.permissions.clear()
    look()
    assert listener.ended == ["a permission was lost"]


def test_a_resource_of_a_function_is_lost_with_its_permission(look):
    site = MCPSite()
    site.add_resource("shop://x", lambda request: "x", name="x", permissions=["testapp.view_tag"])
    user = make_user("reader", "testapp.view_tag")
    listener = listen(user, "shop://x", site=site)
    look()
    user.user_permissions.clear()
    look()
    assert listener.ended == ["a permission was lost"]


# Lists and descriptions


@pytest.fixture
def shop():
    site = MCPSite()
    site.register(Tag, ModelExposure, fields=["name"])
    site.add_tool(lambda request: "x", name="a_tool", permissions=["testapp.add_tag"], read_only=True)
    site.add_prompt(lambda request: "x", name="a_prompt", permissions=["testapp.change_book"])
    site.add_resource("shop://x", lambda request: "x", name="x", permissions=["testapp.view_book"])
    return site


def grant(user, name):
    user.user_permissions.add(Permission.objects.get(codename=name))


def test_lists_that_change_by_permission_are_told_by_kind_to_who_asked(look, shop):
    user, other = make_user("reader"), make_user("other")
    everything, tools = listen(user, lists=LISTS, site=shop), listen(user, lists=["tools"], site=shop)
    unconcerned = listen(other, lists=LISTS, site=shop)
    look()
    steps = {
        "add_tag": (["tools"], ["tools"]),
        "change_book": (["prompts"], []),
        "view_book": (["resources"], []),
        "delete_loan": ([], []),
    }
    for permission, told in steps.items():
        grant(user, permission)
        look()
        assert (everything.take(), tools.take()) == told
        look()
        assert (everything.take(), tools.take()) == ([], [])
    user.user_permissions.clear()
    look()
    assert sorted(everything.take()) == sorted(LISTS)
    assert unconcerned.take() == []
    assert everything.ended == []


def test_lists_that_changed_before_the_first_round_are_told(look, shop):
    user = make_user("reader")
    listener = listen(user, lists=["tools"], site=shop)
    grant(user, "add_tag")
    look()
    assert listener.take() == ["tools"]


def test_lists_are_told_to_who_asks_later_of_the_same_caller(look, shop):
    user = make_user("reader")
    first = listen(user, site=shop)
    look()
    second = listen(user, lists=["tools"], site=shop)
    grant(user, "add_tag")
    look()
    assert (first.take(), second.take()) == ([], ["tools"])


def test_a_description_that_changes_by_permission_is_told(look):
    user = make_user("reader", "testapp.view_book")
    uri = f"{page_of(Book)}/schema"
    listeners = [listen(user, uri), listen(user, uri, page_of(Book))]
    look()
    assert [listener.take() for listener in listeners] == [[], []]
    grant(user, "change_book")
    look()
    assert [listener.take() for listener in listeners] == [[uri], [uri]]
    look()
    assert [listener.take() for listener in listeners] == [[], []]


# Faults


def test_a_database_that_is_down_is_logged_once_and_ends_nothing(look, news, monkeypatch, caplog):
    user = make_superuser()
    _, auth = signed_in(user)
    listener = listen(user, auth=auth)

    def fail(users):
        raise OperationalError("password of the database")

    with monkeypatch.context() as patched:
        patched.setattr(notifier, "reload", fail)
        look()
        look()
    assert caplog.text.count("cannot be checked") == 1
    assert "password" not in caplog.text
    look()
    assert listener.ended == []


def test_211_a_hook_that_fails_keeps_nothing_from_the_others(look, shop, caplog):
    def fail(request):
        raise ZeroDivisionError

    unlucky, lucky = make_user("unlucky"), make_user("lucky")
    listener = listen(unlucky, lists=["tools"], site=shop)
    other = listen(lucky, lists=["tools"], site=shop)
    look()
    broken = MCPSite()
    broken.add_tool(lambda request: "x", name="broken", permission=fail)
    listener.subscription.caller.site = broken
    listener.subscription.caller._context.site = broken
    for user in (unlucky, lucky):
        grant(user, "add_tag")
    look()
    assert other.take() == ["tools"]
    assert listener.ended == []
    assert "ZeroDivisionError" in caplog.text


def test_whoever_cannot_be_told_of_the_end_does_not_stop_the_round(look, caplog):
    user = make_user("reader")
    listeners = [listen(user), listen(user)]

    def fail(reason):
        raise ZeroDivisionError

    listeners[0].subscription.on_end = fail
    user.delete()
    look()
    assert len(listeners[1].ended) == 1
    assert "ZeroDivisionError" in caplog.text
