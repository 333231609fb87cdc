import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import uuid

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction

from mcp_django import MCPSite, notify_changed
from mcp_django.operating.switches import end_switch, set_switch
from mcp_django.protocol.errors import InvalidParams
from mcp_django.subscriptions import notifier, subscribers
from mcp_django.subscriptions.bus import bus
from mcp_django.subscriptions.subscribers import Subscriber, Subscription
from tests.configured import configured
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.subscribers import listen, page_of, rolled_back, tell_at_once, uri_of, without_outages
from tests.testapp.models import Book, Tag
from tests.tool_calls import request_of


@pytest.fixture
def news(monkeypatch):
    return tell_at_once(monkeypatch)


@pytest.fixture
def real():
    """The threads of this process, ended with the test."""
    yield
    process = notifier._notifiers[0]
    for subscription in process.audience.subscriptions():
        subscription.close()
    process.stop()


# What may be asked for


def test_106_only_so_many_resources_can_be_asked_for():
    Subscription.check_uris([f"shop://{number}" for number in range(200)])
    with pytest.raises(InvalidParams, match="At most 200"):
        Subscription.check_uris(["shop://x"] * 201)
    with configured(MAX_SUBSCRIPTIONS=2), pytest.raises(InvalidParams, match="At most 2"):
        Subscription.check_uris(["shop://x"] * 3)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "shop",
        "//shop",
        "1shop://x",
        "shop:",
        "shop://a b",
        "shop://a\nb",
        "shop://\x00",
        "shop://" + "x" * 8192,
        5,
        None,
    ],
    ids=lambda uri: repr(uri)[:12],
)
def test_106_what_is_no_uri_is_refused(uri):
    with pytest.raises(InvalidParams, match="named by a URI"):
        Subscription.check_uris(["shop://x", uri])


@pytest.mark.parametrize(
    "uri", ["shop://x*'\"", "shop://ü€", "urn:x", "a+b-c.d:x", "shop://" + "x" * 8185], ids=lambda uri: uri[:12]
)
def test_109_any_uri_can_be_asked_for(uri, news, db):
    Subscription.check_uris([uri])
    site = MCPSite()
    site.add_resource("shop://{+rest}", lambda request, rest: rest, name="all")
    listener = listen(make_superuser(), uri, site=site)
    found = bool(re.match("shop:", uri))
    assert listener.subscription.uris == ((uri,) if found else ())
    news.publish("changes", {"uris": [uri]})
    news.process.tell()
    assert listener.take() == ([uri] if found else [])


@pytest.mark.django_db
def test_a_request_that_is_refused_leaves_nothing_behind(news, monkeypatch):
    with pytest.raises(InvalidParams):
        listen(make_superuser(), "no uri")

    def fail(request, uris):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(subscribers, "find_watches", fail)
        with pytest.raises(ZeroDivisionError):
            listen(make_superuser("chief"), "shop://x")
    monkeypatch.setattr(news.process.checker, "wake", lambda: fail(None, None))
    with pytest.raises(ZeroDivisionError):
        listen(make_superuser("boss"), "shop://x")
    assert not news.process.audience.callers()


# What is honoured


@pytest.mark.django_db
def test_110_what_is_honoured_is_what_the_caller_may_see(news):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book), "django://testapp/book/999", lists=["tools", "toys"])
    assert listener.subscription.uris == (uri_of(book),)
    assert listener.subscription.lists == {"tools"}


@pytest.mark.django_db
def test_turned_off_no_resources_are_honoured(news, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "EVENTS": False}
    listener = listen(make_superuser(), uri_of(make_book()), lists=["tools"])
    assert listener.subscription.uris == ()
    assert listener.subscription.lists == {"tools"}


@pytest.mark.django_db
def test_the_resources_can_be_others_later(news):
    user, books = make_user("reader", "testapp.view_book"), [make_book() for _ in range(3)]
    uris = [uri_of(book) for book in books]
    listener = listen(user, *uris[:2])
    listener.subscription.set_uris([uris[2], "django://testapp/tag", uris[1]])
    assert listener.subscription.uris == (uris[2], uris[1])
    for book in books:
        news.publish("changes", {"rows": {"testapp.book": [str(book.pk)]}})
    news.process.tell()
    assert sorted(listener.take()) == sorted(uris[1:])
    with pytest.raises(InvalidParams):
        listener.subscription.set_uris(["no uri"])
    assert listener.subscription.uris == (uris[2], uris[1])


@pytest.mark.django_db
def test_102_what_is_added_later_is_judged_by_the_user_as_of_then(news):
    user, book = make_user("reader", "testapp.view_book"), make_book()
    listener = listen(user)
    user.user_permissions.clear()
    listener.subscription.set_uris([uri_of(book)])
    assert listener.subscription.uris == ()
    user.delete()
    listener.subscription.set_uris([uri_of(book)])
    assert listener.subscription.uris == ()


@pytest.mark.django_db
def test_a_closed_subscription_watches_nothing_any_more(news):
    listener = listen(make_superuser(), lists=["tools"])
    listener.subscription.close()
    listener.subscription.close()
    listener.subscription.set_uris([uri_of(make_book())])
    listener.subscription.end("too late")
    assert listener.subscription.uris == ()
    assert listener.ended == []
    assert not news.process.audience._index


@pytest.mark.django_db
def test_a_page_that_cannot_be_had_is_not_honoured(news, monkeypatch):
    user = make_user("reader", "testapp.view_book")
    original = subscribers.content_digest

    def fail(request, watch):
        if "ordering" in watch.uri:
            raise subscribers.NotFound
        return original(request, watch)

    monkeypatch.setattr(subscribers, "content_digest", fail)
    listener = listen(user, page_of(Book), f"{page_of(Book)}?ordering=title")
    assert listener.subscription.uris == (page_of(Book),)


@pytest.mark.django_db
def test_two_who_come_at_once_are_one_caller_with_its_lists(news, monkeypatch):
    user = make_superuser()
    first = listen(user)
    monkeypatch.setattr(news.process.audience, "find", lambda request: None)
    second = listen(user, lists=["tools"])
    assert second.subscription.caller is first.subscription.caller
    assert first.subscription.caller.lists is not None


@pytest.mark.django_db
def test_what_is_opened_while_the_last_one_closes_is_found(news):
    user, book = make_superuser(), make_book()
    first = listen(user, uri_of(book))
    original = news.process.audience.find

    def find_and_close(request):
        caller = original(request)
        first.subscription.close()
        return caller

    news.process.audience.find = find_and_close
    second = listen(user, uri_of(book))
    news.publish("changes", {"rows": {"testapp.book": [str(book.pk)]}})
    news.process.tell()
    assert second.take() == [uri_of(book)]
    assert first.take() == []


@pytest.mark.django_db
def test_models_that_were_registered_late_are_listened_to(news, monkeypatch):
    called = []
    monkeypatch.setattr(notifier, "connect_models", lambda: called.append(True))
    listen(make_superuser())
    listen(make_superuser("chief"))
    assert called == [True]
    assert set(news.subscribers) == {"changes", "switches"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_the_child_of_a_fork_has_no_subscriptions(monkeypatch):
    processes = [notifier.Notifier()]
    monkeypatch.setattr(notifier, "_notifiers", processes)
    parents = processes[0]
    caller = Subscriber(request_of(User(pk=1)))
    parents.audience.add(Subscription(caller, None, frozenset(), print, print, parents.audience))
    notifier._forked()
    assert processes[0] is not parents
    assert not processes[0].audience.callers()


# With threads


def quiet_books(number):
    """Books that nobody is told of, as they are made before there are streams."""
    author = make_author()
    books = [Book(title=f"{i}", author=author, isbn=f"quiet {i}", price=1) for i in range(number)]
    return Book.objects.bulk_create(books)


@pytest.mark.django_db(transaction=True)
def test_104_subscribers_are_told_after_the_commit_and_never_of_what_was_rolled_back(real):
    user, books = make_superuser(), quiet_books(3)
    listener = listen(user, *map(uri_of, books))
    with transaction.atomic():
        books[0].save()
        with rolled_back():
            books[1].save()
        assert not listener.told
    assert listener.wait(lambda: listener.uris == [uri_of(books[0])])
    with rolled_back():
        books[1].save()
    books[2].save()
    assert listener.wait(lambda: uri_of(books[2]) in listener.uris)
    assert listener.uris == [uri_of(books[0]), uri_of(books[2])]


@pytest.mark.django_db(transaction=True)
def test_107_a_burst_is_told_a_few_times_and_the_end_of_it_at_last(real):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book))
    titles = []
    deliver = listener.deliver

    def read_and_deliver(method, params):
        titles.append(Book.objects.get().title)
        deliver(method, params)

    listener.subscription.deliver = read_and_deliver
    for number in range(300):
        book.title = f"Title {number}"
        book.save()
    assert listener.wait(lambda: titles[-1:] == ["Title 299"])
    assert len(titles) < 150


@pytest.mark.django_db(transaction=True)
def test_changes_are_told_from_one_thread_of_the_app(real):
    book, threads = make_book(), set()
    listeners = [listen(make_superuser(f"user{number}"), uri_of(book), lists=["tools"]) for number in range(5)]
    for listener in listeners:
        original = listener.subscription.deliver

        def deliver(method, params, original=original):
            threads.add(threading.current_thread().name)
            original(method, params)

        listener.subscription.deliver = deliver
    savers = [threading.Thread(target=save_in_thread, args=[book.pk]) for _ in range(5)]
    for thread in savers:
        thread.start()
    for thread in savers:
        thread.join()
    for listener in listeners:
        assert listener.wait(lambda listener=listener: listener.told)
    assert threads == {"mcp-events"}


def save_in_thread(pk):
    Book.objects.get(pk=pk).save()
    connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_an_async_tool_may_tell(real):
    site = MCPSite()
    site.add_resource("shop://x", lambda request: "x", name="x")
    listener = listen(make_superuser(), "shop://x", site=site)

    async def tool():
        notify_changed("shop://x")

    asyncio.run(tool())
    assert listener.wait(lambda: listener.uris == ["shop://x"])


@pytest.mark.django_db(transaction=True)
def test_the_sweep_runs_by_itself_while_streams_are_open(real, monkeypatch):
    monkeypatch.setattr(notifier, "EVERY", 0.01)
    user = make_user("reader")
    listener, other = listen(user), listen(make_superuser())
    user.delete()
    assert listener.wait(lambda: listener.ended)
    assert other.ended == []
    other.subscription.close()
    late = make_user("late")
    again = listen(late, uri_of(Tag.objects.create(name="t")))
    late.delete()
    assert again.wait(lambda: again.ended)


@pytest.mark.django_db(transaction=True)
def test_lists_that_switches_change_for_a_moment_are_told_each_time(real, monkeypatch):
    monkeypatch.setattr(notifier, "EVERY", 1000.0)
    listener = listen(make_superuser(), lists=["tools"])
    switch = set_switch("tool", "delete_record")
    assert listener.wait(lambda: listener.lists == ["tools"])
    end_switch(switch)
    assert listener.wait(lambda: listener.lists == ["tools", "tools"])


# With other processes


def redis_layer(url):
    config = {"hosts": [url], "prefix": f"test{uuid.uuid4().hex}"}
    return {"default": {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": config}}


PROGRAM = """
    import json, sys
    import django
    from django.conf import settings
    settings.CHANNEL_LAYERS = json.loads(sys.argv[1])
    settings.DATABASES["default"]["NAME"] = sys.argv[2]
    django.setup()
    from django.db import transaction
    from mcp_django.subscriptions import bus
    from tests.testapp.models import Book
    bus.FLUSH_TIMEOUT = 30
    book = Book.objects.get(pk=sys.argv[3])
    with transaction.atomic():
        book.save()
    with transaction.atomic():
        Book.objects.get(pk=sys.argv[4]).save()
        transaction.set_rollback(True)
"""


@pytest.mark.django_db(transaction=True)
def test_111_a_command_tells_the_streams_of_a_worker_through_redis(real, redis, settings):
    settings.CHANNEL_LAYERS = layers = redis_layer(redis)
    notifier._notifiers[0].listen()
    assert bus.wait_ready(20)
    changed, given_up, last = quiet_books(3)
    listener = listen(make_superuser(), *map(uri_of, (changed, given_up, last)))
    name = str(connection.settings_dict["NAME"])
    arguments = [json.dumps(layers), name, str(changed.pk), str(given_up.pk)]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
    )
    assert (done.returncode, without_outages(done.stderr)) == (0, "")
    assert listener.wait(lambda: listener.uris == [uri_of(changed)])
    last.save()
    assert listener.wait(lambda: uri_of(last) in listener.uris)
    assert listener.uris == [uri_of(changed), uri_of(last)]


@pytest.mark.django_db(transaction=True)
def test_202_a_dead_layer_neither_fails_nor_delays_the_projects_save(real, settings, monkeypatch):
    settings.CHANNEL_LAYERS = redis_layer("redis://127.0.0.1:9")
    connected = set()
    original = socket.socket.connect

    def connect(self, address):
        if address[1:2] == (9,):
            connected.add(threading.current_thread().name)
        return original(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    book = make_book()
    listener = listen(make_superuser(), uri_of(book))
    for _ in range(50):
        book.save()
    # The streams of the process itself need no layer.
    assert listener.wait(lambda: listener.uris)
    bus.close()
    assert connected == {"mcp-bus"}
