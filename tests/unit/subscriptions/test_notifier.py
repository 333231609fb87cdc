import logging
import threading

import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.db import InterfaceError, OperationalError, connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure, notify_changed, notify_list_changed
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.subscriptions import model_signals, notifier, subscribers
from mcp_django.subscriptions.bus import RESYNC
from mcp_django.subscriptions.changes import Changes
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.subscribers import listen, page_of, rolled_back, tell_at_once, uri_of
from tests.testapp.models import AudioBook, Author, Book, Loan, Section, Shelf, Tag

pytestmark = pytest.mark.django_db
RESOURCE = "http://testserver/mcp"


@pytest.fixture
def news(monkeypatch):
    return tell_at_once(monkeypatch)


@pytest.fixture
def commit(news, django_capture_on_commit_callbacks):
    """Do something, commit it, and have everyone told."""

    def run(work=lambda: None):
        with django_capture_on_commit_callbacks(execute=True):
            work()
        rest = news.process.tell()
        assert rest in (None, notifier.PACE)

    return run


def reader(name="reader", *permissions):
    return make_user(name, "testapp.view_book", *permissions)


# Rows


def test_105_who_watches_a_row_is_told_of_each_way_to_change_it(commit):
    book, other, tag = make_book(), make_book(), Tag.objects.create(name="t")
    audio = AudioBook.objects.create(title="Heard", author=make_author(), isbn="x", price=5, narrator="N")
    listener = listen(make_superuser(), uri_of(book), uri_of(audio))
    for work in (book.save, lambda: book.tags.add(tag), tag.books.clear, lambda: notify_changed(Book.objects.all())):
        commit(work)
        assert listener.take()[:1] == [uri_of(book)]
    commit(other.save)
    assert listener.take() == []
    commit(Book.objects.get(pk=audio.pk).save)
    assert listener.take() == [uri_of(audio)]
    uri = uri_of(book)
    commit(book.delete)
    assert listener.take() == [uri]
    commit(lambda: notify_changed(uri))
    assert listener.take() == []


def test_a_file_is_told_of_with_its_row_and_a_uri_as_the_client_spelt_it(commit):
    shelf, book = Shelf.objects.create(code="A/1 ?"), make_book(cover="covers/a.txt")
    uris = ["django://testapp/shelf/A%2f1%20%3F", f"{uri_of(book)}/cover"]
    listener = listen(make_superuser(), *uris)
    assert listener.subscription.uris == tuple(uris)
    commit(shelf.save)
    assert listener.take() == uris[:1]
    commit(book.save)
    assert listener.take() == uris[1:]


def test_a_row_of_another_class_of_key_is_told_of(commit):
    section = Section.objects.create(name="s")
    listener = listen(make_superuser(), uri_of(section))
    section.pk = section.pk.hex
    commit(section.save)
    assert listener.take() == [f"django://testapp/section/{Section.objects.get().pk}"]


def test_104_a_rolled_back_change_tells_no_subscriber(commit):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book), page_of(Book))

    def work():
        with rolled_back():
            book.save()

    commit(work)
    assert listener.take() == []


def test_107_many_changes_of_a_row_are_told_once(commit):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book))
    commit(lambda: [book.save() for _ in range(200)])
    assert listener.take() == [uri_of(book)]


# Who may know


def test_102_who_may_not_see_the_row_any_more_is_not_told(commit):
    user = reader()
    book = make_book(owner=user)
    listener = listen(user, uri_of(book))

    def give_away():
        book.owner = make_user("other")
        book.save()

    commit(book.save)
    assert listener.take() == [uri_of(book)]
    commit(give_away)
    commit(book.save)
    commit(book.delete)
    assert listener.take() == []


def test_102_a_row_that_comes_back_is_told_of_again(commit):
    user, other = reader(), make_user("other")
    book = make_book(owner=user)
    listener = listen(user, uri_of(book))
    for owner, told in ((other, []), (user, [uri_of(book)])):
        book.owner = owner
        commit(book.save)
        assert listener.take() == told
    uri = uri_of(book)
    commit(book.delete)
    assert listener.take() == [uri]


def test_102_a_hidden_row_is_not_told_of_when_it_is_deleted_for_good(commit):
    """The default manager hides what was deleted before."""
    loan = Loan.objects.create(book=make_book(), borrower="B", due="2024-01-01T00:00:00Z")
    listener = listen(make_superuser(), uri_of(loan))
    loan.deleted = loan.due
    commit(loan.save)
    assert listener.take() == []
    commit(loan.delete)
    assert listener.take() == []


@pytest.mark.parametrize("loss", ["permission", "staff", "active", "user"])
def test_102_a_caller_who_lost_the_permission_is_not_told(commit, loss):
    user, tag = make_user("reader", "testapp.view_tag"), Tag.objects.create(name="t")
    listener = listen(user, uri_of(tag), page_of(Tag), f"{page_of(Tag)}/schema")
    assert len(listener.subscription.uris) == 3
    match loss:
        case "permission":
            user.user_permissions.clear()
        case "user":
            User.objects.filter(pk=user.pk).delete()
        case _:
            User.objects.filter(pk=user.pk).update(**{f"is_{loss}": False})
    commit(tag.save)
    commit(lambda: notify_changed(Tag, f"{page_of(Tag)}/schema", page_of(Tag)))
    commit(tag.delete)
    assert listener.take() == []


@pytest.mark.parametrize("loss", ["revoked", "expired", "cut back", "password"])
def test_what_happens_after_a_token_has_ended_is_told_to_none_of_its_streams(commit, loss, monkeypatch):
    user, tag = make_superuser(), Tag.objects.create(name="t")
    row, raw = create_token(user, scopes=["mcp:read"], resources=[RESOURCE])
    auth = verify(raw, RESOURCE)[1]
    options = {"auth": auth, "scopes": auth.scopes, "facts": auth.facts}
    ending = listen(user, uri_of(tag), lists=["tools"], **options)
    staying = listen(make_user("reader", "testapp.view_tag"), uri_of(tag))
    match loss:
        case "revoked":
            row.revoke()
        case "expired":
            monkeypatch.setattr(notifier.timezone, "now", lambda: auth.expires)
        case "cut back":
            row.scope = ""
            row.save()
        case "password":
            user.set_password("another")
            user.save()
    commit(tag.save)
    commit(lambda: notify_list_changed("tools"))
    assert ending.take() == []
    assert staying.take() == [uri_of(tag)]


def test_the_tokens_of_all_whom_a_change_concerns_are_one_query(news):
    user, tag = make_superuser(), Tag.objects.create(name="t")

    def listeners(number):
        tokens = [create_token(user, scopes=["mcp:read"], resources=[RESOURCE])[1] for _ in range(number)]
        return [listen(user, uri_of(tag), auth=verify(raw, RESOURCE)[1]) for raw in tokens]

    def queries():
        process = notifier._notifiers[0]
        process.put(changes)
        with CaptureQueriesContext(connection) as captured:
            process.tell()
        return sum("oauth2_provider_accesstoken" in query["sql"] for query in captured)

    some, changes = listeners(1), Changes()
    changes.add_rows("testapp.tag", [str(tag.pk)])
    assert queries() == 1
    some += listeners(20)
    assert queries() == 1
    assert all(listener.take() for listener in some)


def test_102_a_permission_that_was_given_by_a_group_counts(commit):
    group, user, tag = Group.objects.create(name="g"), make_user("reader"), Tag.objects.create(name="t")
    group.permissions.set(Permission.objects.filter(codename="view_tag"))
    user.groups.add(group)
    listener = listen(user, uri_of(tag))
    commit(tag.save)
    assert listener.take() == [uri_of(tag)]
    group.permissions.clear()
    commit(tag.save)
    assert listener.take() == []


def test_102_a_permission_for_single_rows_is_asked_for_each(commit):
    class Picky(ModelExposure):
        fields = ("name",)

        def has_view_permission(self, request, obj=None):
            return obj is None or obj.name != "secret"

    site = MCPSite()
    site.register(Author, Picky)
    author = make_author("plain")
    listener = listen(make_superuser(), uri_of(author), page_of(Author), site=site)
    author.name = "secret"
    commit(author.save)
    assert listener.take() == []


def test_an_anonymous_caller_of_an_open_endpoint_is_told(commit):
    class Open(ModelExposure):
        fields = ("name",)

        def has_view_permission(self, request, obj=None):
            return True

    site = MCPSite()
    site.register(Author, Open)
    author = make_author()
    listener = listen(AnonymousUser(), uri_of(author), site=site)
    commit(author.save)
    assert listener.take() == [uri_of(author)]


def test_without_the_scope_to_read_nothing_is_honoured(commit):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book), scopes=frozenset())
    assert listener.subscription.uris == ()


# Pages


def test_108_a_page_is_told_of_rows_that_its_reader_may_see_and_of_no_others(commit):
    user, other = reader(), make_user("other")
    mine, hidden = make_book(owner=user), make_book(owner=other)
    uris = [page_of(Book), f"{page_of(Book)}?ordering=-title"]
    listener, chief = listen(user, *uris), listen(make_superuser(), page_of(Book))
    commit(hidden.save)
    commit(lambda: make_book(owner=other))
    commit(hidden.delete)
    assert listener.take() == []
    assert chief.take() == [page_of(Book)] * 3
    commit(mine.save)
    assert sorted(listener.take()) == sorted(uris)
    commit(lambda: make_book(owner=user))
    assert sorted(listener.take()) == sorted(uris)


def test_108_a_page_is_told_of_rows_that_left_it_and_of_nothing_twice(commit):
    user, other = reader(), make_user("other")
    mine, lost, hidden = make_book(owner=user), make_book(owner=user), make_book(owner=other)
    listener = listen(user, page_of(Book))
    commit(mine.delete)
    assert listener.take() == [page_of(Book)]
    commit(lambda: Book.objects.filter(pk=lost.pk).update(owner=other) and notify_changed(lost))
    assert listener.take() == [page_of(Book)]
    commit(hidden.delete)
    commit(lambda: lost.delete())
    assert listener.take() == []


def test_a_page_of_all_rows_is_told_of_each(commit):
    first, second = [Tag.objects.create(name=f"{number}") for number in range(2)]
    listener = listen(make_user("reader", "testapp.view_tag"), page_of(Tag), uri_of(first))
    commit(second.delete)
    assert listener.take() == [page_of(Tag)]
    uri = uri_of(first)
    commit(first.delete)
    assert sorted(listener.take()) == sorted([page_of(Tag), uri])


def test_any_rows_of_a_model_are_told_by_what_is_visible(commit):
    user, tags = make_user("reader", "testapp.view_tag", "testapp.view_book"), []
    hidden = make_book(owner=make_user("other"))
    tags = [Tag.objects.create(name=f"{number}") for number in range(2)]
    listener = listen(user, page_of(Tag), *map(uri_of, tags), page_of(Book))
    commit(lambda: notify_changed(Tag, Book))
    assert sorted(listener.take()) == sorted([page_of(Tag), *map(uri_of, tags)])
    Tag.objects.all().delete()
    commit(lambda: notify_changed(Tag))
    assert sorted(listener.take()) == sorted([page_of(Tag), *map(uri_of, tags)])
    assert Book.objects.filter(pk=hidden.pk).exists()


def test_a_page_by_its_uri_is_told_when_something_is_visible(commit):
    Tag.objects.create(name="t")
    uri = f"{page_of(Tag)}?ordering=name"
    listener = listen(make_superuser(), uri, page_of(Tag))
    commit(lambda: notify_changed(uri))
    assert listener.take() == [uri]


# Resources and lists


def test_resources_of_functions_are_told_by_the_project(commit):
    site = MCPSite()
    site.add_resource("shop://open/{name}", lambda request, name: name, name="open")
    site.add_resource("shop://closed", lambda request: "x", name="closed", permissions=["testapp.view_tag"])
    user = make_user("reader", "testapp.view_tag")
    listener = listen(user, "shop://open/a", "shop://closed", site=site)
    commit(lambda: notify_changed("shop://open/a", "shop://open/b", "shop://closed"))
    assert sorted(listener.take()) == ["shop://closed", "shop://open/a"]
    user.user_permissions.clear()
    commit(lambda: notify_changed("shop://open/a", "shop://closed"))
    assert listener.take() == ["shop://open/a"]


def test_lists_are_told_to_who_asked_for_them_on_the_site(commit):
    staff = MCPSite("staff")
    user = make_superuser()
    everything = listen(user, lists=["tools", "prompts", "resources", "toys"])
    tools, none, other = listen(user, lists=["tools"]), listen(user), listen(user, lists=["tools"], site=staff)
    assert everything.subscription.lists == {"tools", "prompts", "resources"}
    commit(lambda: notify_list_changed("tools", "prompts"))
    assert [sorted(item.take()) for item in (everything, tools, none, other)] == [
        ["prompts", "tools"],
        ["tools"],
        [],
        ["tools"],
    ]
    commit(lambda: notify_list_changed("tools", site=staff))
    assert [item.take() for item in (everything, tools, none, other)] == [[], [], [], ["tools"]]


def test_108_rows_change_no_list(commit):
    listener = listen(make_superuser(), lists=["tools", "prompts", "resources"])
    commit(make_book)
    assert listener.take() == []


# Resync


def test_202_after_a_loss_everyone_is_told_everything_that_is_still_visible(commit, news):
    user, other = reader(), make_user("other")
    mine, lost, gone = make_book(owner=user), make_book(owner=user), make_book(owner=user)
    listener = listen(user, uri_of(mine), uri_of(lost), uri_of(gone), page_of(Book), lists=["tools", "prompts"])
    Book.objects.filter(pk=lost.pk).update(owner=other)
    Book.objects.filter(pk=gone.pk).delete()
    news.process.heard(RESYNC)
    commit()
    assert sorted(listener.take()) == sorted([uri_of(mine), uri_of(gone), page_of(Book), "prompts", "tools"])


def test_202_losses_in_a_row_are_told_at_most_once_a_second(news, commit):
    book = make_book()
    listener, run = listen(make_superuser(), uri_of(book)), news.process.tell
    news.process.heard(RESYNC)
    assert run() == notifier.PACE
    news.process.heard(RESYNC)
    rest = run()
    assert 0 < rest <= notifier.RESYNC_PACE
    assert listener.take() == [uri_of(book)]
    # What is known to have changed does not wait.
    commit(book.save)
    assert listener.take() == [uri_of(book)]
    news.process._resync_at = 0
    assert run() == notifier.PACE
    assert listener.take() == [uri_of(book)]
    assert run() is None


def test_a_message_that_is_not_understood_may_mean_anything(news, commit):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book))
    news.publish("changes", ["?"])
    commit()
    assert listener.take() == [uri_of(book)]


# Many


def test_the_queries_for_a_change_do_not_grow_with_the_streams_of_a_user(commit, django_assert_num_queries):
    user, book = reader(), make_book()
    listeners = [listen(user, uri_of(book), page_of(Book)) for _ in range(3)]
    notify = Changes()
    notify.add_rows("testapp.book", [str(book.pk)])

    def queries():
        process = notifier._notifiers[0]
        process.put(notify)
        with django_assert_num_queries(5):
            process.tell()

    queries()
    listeners += [listen(user, uri_of(book), page_of(Book)) for _ in range(50)]
    queries()
    assert all({uri_of(book), page_of(Book)} == set(listener.take()) for listener in listeners)


def test_the_queries_for_a_change_do_not_grow_with_the_users_of_rows_that_are_everyones(
    commit, django_assert_num_queries
):
    tags = [Tag.objects.create(name=f"{number}") for number in range(20)]
    group = Group.objects.create(name="g")
    group.permissions.set(Permission.objects.filter(codename="view_tag"))
    listeners = []
    for number, tag in enumerate(tags):
        user = make_user(f"user{number}")
        user.groups.add(group)
        listeners.append(listen(user, uri_of(tag), page_of(Tag)))
    notify = Changes()
    notify.add_rows("testapp.tag", [str(tag.pk) for tag in tags])
    process = notifier._notifiers[0]
    process.put(notify)
    with django_assert_num_queries(5):
        process.tell()
    assert all(len(listener.take()) == 2 for listener in listeners)


# Faults


class Moody(ModelExposure):
    fields = ("name",)
    error: Exception | None = None

    def get_queryset(self, request):
        if type(self).error is not None and request.user.username == "unlucky":
            raise type(self).error
        return super().get_queryset(request)


@pytest.fixture
def moody(news, monkeypatch):
    """A site whose rows cannot be had for one of its users when something is wrong."""
    site = MCPSite()
    site.register(Author, Moody)
    model_signals.connect_models()
    author = make_author()
    permission = "testapp.view_author"
    lucky, unlucky = [listen(make_user(name, permission), uri_of(author), site=site) for name in ("lucky", "unlucky")]

    def change(error):
        monkeypatch.setattr(Moody, "error", error)
        some = Changes()
        some.add_rows("testapp.author", [str(author.pk)])
        news.process.put(some)
        return news.process.tell

    return change, uri_of(author), lucky, unlucky


def test_211_a_hook_that_fails_closes_that_call_and_keeps_the_streams(moody, caplog):
    change, uri, lucky, unlucky = moody
    assert change(ZeroDivisionError("x"))() == notifier.PACE
    assert (lucky.take(), unlucky.take()) == ([uri], [])
    assert "ZeroDivisionError" in caplog.text
    change(None)()
    assert (lucky.take(), unlucky.take(), unlucky.ended) == ([uri], [uri], [])


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
def test_202_a_change_that_cannot_be_checked_now_is_told_when_it_can(moody, monkeypatch, kind):
    change, uri, _, unlucky = moody
    run = change(kind("down"))
    assert run() == 2.0
    assert run() == 4.0
    monkeypatch.setattr(Moody, "error", None)
    assert run() == notifier.PACE
    assert unlucky.take() == [uri]
    assert run() is None


def test_202_who_cannot_be_told_for_long_is_ended_and_not_left_stale(moody):
    change, uri, lucky, unlucky = moody
    run = change(OperationalError("down"))
    pauses = [run() for _ in range(notifier.ATTEMPTS)]
    assert pauses == [2.0, 4.0, 8.0, 10.0, 10.0, notifier.PACE]
    assert unlucky.ended == ["changes cannot be checked"]
    assert lucky.ended == []
    assert set(lucky.take()) == {uri}
    assert run() is None


def test_202_a_database_that_is_down_loses_no_change(news, commit, monkeypatch):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book))

    def fail(users):
        raise OperationalError("down")

    news.process.heard(Changes.read("changes", {"rows": {"testapp.book": [str(book.pk)]}}))
    with monkeypatch.context() as patched:
        patched.setattr(notifier, "reload", fail)
        assert news.process.tell() == 2.0
    assert listener.take() == []
    commit()
    assert listener.take() == [uri_of(book)]


def test_a_stream_that_cannot_be_told_keeps_nothing_from_the_others(commit, caplog):
    user, book = make_superuser(), make_book()
    broken, sound = listen(user, uri_of(book)), listen(user, uri_of(book))

    def fail(method, params):
        raise ZeroDivisionError

    broken.subscription.deliver = fail
    with caplog.at_level(logging.ERROR):
        commit(book.save)
    assert sound.take() == [uri_of(book)]
    assert "delivery" in caplog.text


def test_a_closed_stream_is_told_nothing(commit):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book), lists=["tools"])
    listener.subscription.close()
    commit(book.save)
    commit(lambda: notify_list_changed("tools"))
    assert listener.take() == []


def test_what_is_heard_while_a_round_runs_is_told_in_the_next(news, commit):
    book = make_book()
    listener = listen(make_superuser(), uri_of(book))
    deliver, rounds = listener.subscription.deliver, []

    def deliver_and_change(method, params):
        deliver(method, params)
        if not rounds:
            rounds.append(threading.current_thread())
            news.publish("changes", {"rows": {"testapp.book": [str(book.pk)]}})

    listener.subscription.deliver = deliver_and_change
    commit(book.save)
    assert listener.take() == [uri_of(book)]
    commit()
    assert listener.take() == [uri_of(book)]


# One user's watches are not another one's wait


def test_who_watches_much_is_told_after_who_watches_little(commit, monkeypatch):
    order = []
    book, user = make_book(), make_superuser("heavy")
    pages = [f"{page_of(Book)}?search=word{number}" for number in range(1, 51)]
    heavy = [listen(user, *pages[start : start + 10]) for start in range(0, 50, 10)]
    light = listen(make_superuser("light"), uri_of(book))
    for name, listeners in (("heavy", heavy), ("light", [light])):
        for listener in listeners:
            deliver = listener.subscription.deliver
            monkeypatch.setattr(
                listener.subscription, "deliver", lambda *told, n=name, d=deliver: (order.append(n), d(*told))
            )
    commit(book.save)
    assert order == ["light", *["heavy"] * 50]


def test_a_user_watches_so_many_pages_and_any_number_of_their_rows(news, monkeypatch):
    monkeypatch.setattr(subscribers, "MAX_PAGES", 5)
    book, user, other = make_book(), make_superuser("heavy"), make_superuser("other")
    pages = [f"{page_of(Book)}?search=word{number}" for number in range(1, 10)]
    first = listen(user, *pages[:3])
    second = listen(user, *pages[2:], uri_of(book))
    assert first.subscription.uris == tuple(pages[:3])
    assert second.subscription.uris == (*pages[2:5], uri_of(book))
    assert listen(other, *pages[:5]).subscription.uris == tuple(pages[:5])
    first.subscription.close()
    second.subscription.set_uris(pages)
    assert second.subscription.uris == tuple(pages[:5])
