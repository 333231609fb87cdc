import pytest
from django.contrib.auth.models import AnonymousUser, User

from mcp_django import MCPSite
from mcp_django.orm.access import access_of
from mcp_django.subscriptions.changes import Changes
from mcp_django.subscriptions.subscribers import Subscriber, SubscriptionIndex, subscriber_key
from mcp_django.subscriptions.watched_resources import Watch
from tests.factories import make_user
from tests.subscribers import SCOPES
from tests.testapp.models import Tag
from tests.tool_calls import request_of

ROW, FILE = Watch("django://a/b/1", "a.b", "1"), Watch("django://a/b/1/f", "a.b", "1", "f")
OTHER, PAGE = Watch("django://a/b/2", "a.b", "2"), Watch("django://a/b", "a.b")
PLAIN = Watch("shop://x")


class Stream:
    """Stands for a subscription."""

    def __init__(self):
        self.watches = ()


def request(user=None, **options):
    return request_of(user or User(pk=1), **{"scopes": SCOPES, **options})


def changes(*pks, label="a.b", uris=(), everything=False):
    found = Changes()
    if pks:
        found.add_rows(label, pks)
    found.add_uris(uris)
    found.everything = everything
    return found


def any_row():
    found = Changes()
    found.add_rows("a.b", None)
    return found


@pytest.fixture
def audience():
    return SubscriptionIndex()


@pytest.fixture
def open_stream(audience):
    def start(*watches, user=None, **options):
        stream = Stream()
        stream.caller = Subscriber(request(user, **options))
        audience.add(stream)
        audience.watch(stream, watches)
        return stream

    return start


def concerned(audience, some):
    return {(stream, watch) for entries in audience.concerned(some).values() for stream, watch in entries}


# Callers


def test_requests_of_one_user_with_one_authority_are_one_caller():
    assert subscriber_key(request(User(pk=1))) == subscriber_key(request(User(pk=1)))
    assert subscriber_key(request(AnonymousUser())) == subscriber_key(request(AnonymousUser()))


@pytest.mark.parametrize(
    "options",
    [
        {"user": User(pk=2)},
        {"user": AnonymousUser()},
        {"scopes": frozenset({"mcp:read"})},
        {"client_id": "other"},
        {"site": MCPSite()},
        {"resource": "https://other.example/mcp"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_another_authority_is_another_caller(options):
    assert subscriber_key(request(**options)) != subscriber_key(request())


def test_what_hooks_could_look_at_tells_callers_apart_and_the_noise_of_requests_does_not():
    plain, noisy, tenant, elsewhere = request(), request(), request(), request()
    noisy.META = {**noisy.META, "HTTP_MCP_NAME": "django://a/b/1", "HTTP_TRACEPARENT": "00-1", "CONTENT_LENGTH": "5"}
    tenant.tenant = "one"
    elsewhere.META = {**elsewhere.META, "HTTP_X_TENANT": "two"}
    assert subscriber_key(plain) == subscriber_key(noisy)
    assert len({subscriber_key(item) for item in (plain, tenant, elsewhere)}) == 3


def test_what_cannot_be_compared_is_nobody_elses():
    first, second = request(), request()
    first.flags, second.flags = ["a"], ["a"]
    assert subscriber_key(first) != subscriber_key(second)
    assert subscriber_key(first) == subscriber_key(first)


def test_an_authentication_of_the_projects_own_is_nobody_elses():
    class Own:
        pass

    class Ours:
        scopes = SCOPES

    own = [request() for _ in range(2)]
    for item in own:
        item.auth = Own()
    ours = [request() for _ in range(2)]
    for item in ours:
        item.auth = Ours()
    assert subscriber_key(own[0]) != subscriber_key(own[1])
    assert subscriber_key(ours[0]) == subscriber_key(ours[1])


@pytest.mark.django_db
def test_102_each_look_has_a_request_that_remembers_nothing():
    user = make_user("reader", "testapp.view_tag")
    original = request(user, notify=print, progress_token=1)
    original.tenant, original._secret = "one", "two"
    exposure = original.mcp.site.exposures[Tag]
    assert access_of(original)[exposure].is_there
    caller = Subscriber(original)
    user.user_permissions.clear()
    made = caller.request(User.objects.get(pk=user.pk))
    assert not access_of(made)[exposure].is_there
    assert (made.tenant, made.META, made.path) == ("one", original.META, original.path)
    assert not hasattr(made, "_secret")
    assert (made.mcp.scopes, made.mcp.client_id) == (SCOPES, "client-1")
    assert made.mcp.notify is None
    assert made.mcp.progress_token is None
    assert access_of(original)[exposure].is_there


# Who is concerned


def test_a_change_concerns_who_watches_it_and_nobody_else(audience, open_stream):
    row, file, other, page, plain = [open_stream(watch) for watch in (ROW, FILE, OTHER, PAGE, PLAIN)]
    assert concerned(audience, changes("1")) == {(row, ROW), (file, FILE), (page, PAGE)}
    assert concerned(audience, changes("3")) == {(page, PAGE)}
    assert concerned(audience, changes("1", label="a.c")) == set()
    assert concerned(audience, any_row()) == {(row, ROW), (file, FILE), (other, OTHER), (page, PAGE)}
    assert concerned(audience, changes(uris=["shop://x", PAGE.uri])) == {(plain, PLAIN), (page, PAGE)}
    assert len(concerned(audience, changes(everything=True))) == 5


def test_streams_of_one_caller_are_found_together(audience, open_stream):
    streams = [open_stream(ROW) for _ in range(3)]
    other = open_stream(ROW, user=User(pk=2))
    found = audience.concerned(changes("1"))
    assert {caller.user.pk: len(entries) for caller, entries in found.items()} == {1: 3, 2: 1}
    assert audience.subscriptions() == [*streams, other]
    assert [caller.user.pk for caller in audience.callers()] == [1, 2]
    assert audience.find(request()) is streams[0].caller
    assert audience.find(request(User(pk=3))) is None


def test_a_stream_that_watches_something_else_is_not_concerned_by_what_it_watched(audience, open_stream):
    stream = open_stream(ROW, FILE, PAGE)
    audience.watch(stream, (FILE, OTHER))
    assert stream.watches == (FILE, OTHER)
    assert concerned(audience, changes("1", "2")) == {(stream, FILE), (stream, OTHER)}
    assert concerned(audience, changes(uris=[PAGE.uri])) == set()


def test_53_nothing_is_left_of_streams_that_were_closed(audience, open_stream):
    streams = [open_stream(ROW, FILE, OTHER, PAGE, PLAIN, user=User(pk=pk)) for pk in (1, 1, 2)]
    for stream in streams:
        stream.caller.pages[PAGE.uri] = 1
        audience.remove(stream)
        audience.remove(stream)
    caller = streams[0].caller
    assert not any([audience._index, audience._pks, audience._callers, caller.seen, caller.pages])
    audience.watch(streams[0], (ROW,))
    assert not audience._index


def test_what_was_seen_is_known_while_somebody_watches_it(audience, open_stream):
    first, second = open_stream(ROW, OTHER), open_stream(FILE)
    assert first.caller.seen == {("a.b", "1"), ("a.b", "2")}
    audience.remove(first)
    assert second.caller.seen == {("a.b", "1")}


def test_only_changes_that_somebody_watches_are_kept(audience, open_stream):
    assert not audience.relevant(changes("1", everything=True))
    stream = open_stream(ROW, PLAIN)
    found = audience.relevant(changes("1", "2", uris=["shop://x", "shop://y"]))
    assert (found.rows, found.uris) == ({"a.b": {"1"}}, {"shop://x"})
    assert not audience.relevant(changes("2"))
    assert not audience.relevant(changes("1", label="a.c"))
    assert audience.relevant(any_row()).rows == {"a.b": None}
    assert audience.relevant(changes(everything=True)).everything
    audience.watch(stream, (PAGE,))
    # A page wants to know of all rows.
    assert audience.relevant(changes("1", "2")).rows == {"a.b": {"1", "2"}}


@pytest.mark.parametrize(("left", "closed"), [(ROW, FILE), (FILE, ROW)])
def test_a_row_is_watched_until_the_last_of_its_resources_is_closed(audience, open_stream, left, closed):
    first, second = open_stream(left), open_stream(closed)
    audience.remove(second)
    assert audience.relevant(changes("1")).rows == {"a.b": {"1"}}
    assert concerned(audience, audience.relevant(changes("1"))) == {(first, left)}
