import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.cache import cache as django_cache
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.models import ServiceAccount, Switch
from mcp_django.operating import shared_snapshots, switches
from mcp_django.operating.shared_snapshots import PATIENCE, POLL
from mcp_django.operating.switches import Board, Off, end_switch, find_switches, set_switch
from mcp_django.signals import switches_changed
from tests.factories import make_superuser, make_user
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def clock(monkeypatch):
    """A monotonic clock that stands still."""

    class Clock:
        now = 1_000.0

    monkeypatch.setattr(shared_snapshots.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.fixture
def away(monkeypatch):
    """A cache that does not answer."""

    def fail(*args, **kwargs):
        raise ConnectionError("no cache")

    monkeypatch.setattr(shared_snapshots.cache, "get", fail, raising=False)
    monkeypatch.setattr(shared_snapshots.cache, "set", fail, raising=False)


@pytest.fixture
def asked():
    """Assert how often the database is asked for switches; in the transaction of a test there are savepoints, too."""

    @contextmanager
    def count(expected):
        with CaptureQueriesContext(connection) as captured:
            yield
        found = [query["sql"] for query in captured if "SAVEPOINT" not in query["sql"]]
        assert len(found) == expected, found

    return count


def row(kind="writes", target="", **values):
    """Make a row as another process would: nothing is told."""
    return Switch.objects.create(kind=kind, target=target, **values)


def kinds(board):
    off = board.current()
    return set() if off is None else {(item.kind, item.target) for item in off.switched}


# The picture in memory


def test_a_process_that_has_just_begun_asks_once(clock, asked):
    board = Board()
    with asked(1):
        assert board.current() is None
    with asked(0):
        assert board.current() is None


def test_the_database_is_asked_each_three_seconds_whatever_the_cache_says(clock, asked):
    board = Board()
    board.current()
    row()
    clock.now += POLL - 0.1
    with asked(0):
        assert kinds(board) == set()
    clock.now += Board.LOOK
    with asked(1):
        assert kinds(board) == {("writes", "")}


def test_another_mark_in_the_cache_is_seen_within_a_second(clock, asked):
    board = Board()
    board.current()
    row()
    django_cache.set(Board.mark, "another")
    clock.now += Board.LOOK
    with asked(1):
        assert kinds(board) == {("writes", "")}
    clock.now += Board.LOOK
    with asked(0):
        assert kinds(board) == {("writes", "")}


def test_without_a_cache_switches_act_within_five_seconds(clock, away, asked):
    board = Board()
    board.current()
    row()
    clock.now += Board.LOOK
    with asked(0):
        assert kinds(board) == set()
    clock.now += POLL
    assert POLL + Board.LOOK < 5
    with asked(1):
        assert kinds(board) == {("writes", "")}


def test_who_cannot_wait_has_the_database_asked_before_it_is_due(clock, asked):
    board = Board()
    board.current()
    row()
    clock.now += Board.LOOK / 2
    with asked(0):
        board.renew()
        board.renew(Board.LOOK)
    with asked(1):
        board.renew(Board.LOOK / 2)
    assert board.off is not None


def test_the_mark_is_kept_while_the_cache_is_away(clock, monkeypatch):
    board = Board()
    board.current()

    def away(key):
        raise ConnectionError

    monkeypatch.setattr(shared_snapshots.cache, "get", away, raising=False)
    clock.now += POLL
    board.current()
    assert board._mark is None


def test_a_database_that_does_not_answer_changes_nothing_and_is_told_once(clock, monkeypatch, caplog):
    row()
    board = Board()
    assert kinds(board) == {("writes", "")}

    def fail(board):
        raise DatabaseError("gone")

    monkeypatch.setattr(Board, "_read", fail)
    for _ in range(3):
        clock.now += POLL
        assert kinds(board) == {("writes", "")}
    assert caplog.text.count("The switches cannot be read: DatabaseError") == 1


def test_a_look_that_another_thread_takes_is_not_waited_for_while_the_picture_is_fresh(monkeypatch):
    board = Board()
    board.current()
    board.due = 0.0
    assert board._lock.acquire(timeout=1)
    reads = []
    monkeypatch.setattr(Board, "_read", lambda board: reads.append(1) or ())
    done = threading.Event()

    def look():
        board.renew()
        done.set()

    threading.Thread(target=look).start()
    assert done.wait(10)
    assert not reads
    board._lock.release()


def test_an_older_picture_is_asked_for_on_request(clock, asked):
    board = Board()
    board.current()
    clock.now += Board.LOOK - 0.01
    with asked(0):
        board.renew(Board.LOOK)
    clock.now += 0.01
    with asked(1):
        board.renew(Board.LOOK)


def test_a_switch_begins_and_ends_by_itself(clock, monkeypatch, asked):
    now = timezone.now()
    row(begins=now + timedelta(seconds=0.5), until=now + timedelta(seconds=0.9))
    board, times = Board(), iter([0, 0.6, 1])
    rows = tuple(Switch.objects.all())
    monkeypatch.setattr(Board, "_read", lambda board: rows)
    monkeypatch.setattr(switches.timezone, "now", lambda: now + timedelta(seconds=next(times)))
    assert kinds(board) == set()
    with asked(0):
        clock.now += 0.5
        assert kinds(board) == {("writes", "")}
        clock.now += 0.3
        assert kinds(board) == set()


def test_each_picture_has_a_version_of_its_own():
    make_user("ada")
    versions = set()
    for kind, target in (("writes", ""), ("user", "ada"), ("tool", "get_record")):
        set_switch(kind, target)
        versions.add(switches.board.current().version)
    end_switch(find_switches("writes")[0])
    versions.add(switches.board.current().version)
    assert len(versions) == 4


# Setting and ending


def test_a_switch_acts_in_its_own_process_at_once_and_its_end_too():
    switch = set_switch("tool", "delete_record", reason="Audit")
    found = switches.board.current().tool("delete_record", read_only=False)
    assert found.reason == "Audit"
    assert end_switch(switch) is True
    assert switches.board.current() is None
    assert end_switch(switch) is False


def test_who_did_it_is_in_the_row_and_in_the_history_of_the_admin():
    root = make_superuser()
    switch = set_switch("writes", by=root, reason="Stocktaking")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.action_flag, entry.object_id) == (root, ADDITION, str(switch.pk))
    assert entry.get_change_message() == "Added."
    end_switch(switch, by=root)
    entry = LogEntry.objects.order_by("pk").last()
    assert (entry.action_flag, entry.get_edited_object()) == (CHANGE, switch)
    assert entry.get_change_message() == "Changed ended."
    switch.refresh_from_db()
    assert (switch.by, switch.ended_by) == ("root", "root")
    assert switch.ended is not None


def test_who_is_no_user_is_named_in_the_row():
    switch = set_switch("writes", by="nightly job")
    assert switch.by == "nightly job"
    assert not LogEntry.objects.exists()


def test_a_switch_that_is_set_again_replaces_the_one_before():
    first = set_switch("writes", reason="one", by="a")
    set_switch("writes", reason="two", by="b")
    first.refresh_from_db()
    assert first.ended is not None
    assert first.ended_by == "b"
    assert [switch.reason for switch in find_switches("writes")] == ["two"]


def test_one_that_is_to_come_ends_none():
    now = timezone.now()
    set_switch("writes", reason="now")
    later = set_switch("writes", reason="later", begins=now + timedelta(hours=1), until=timedelta(hours=2))
    assert later.until - later.begins == timedelta(hours=2)
    assert [switch.reason for switch in find_switches("writes")] == ["now", "later"]
    assert [item.reason for item in switches.board.current().switched] == ["now"]


def test_all_are_told_when_it_is_committed(django_capture_on_commit_callbacks):
    told = []

    def receive(**kwargs):
        told.append(django_cache.get(Board.mark))

    switches_changed.connect(receive)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            switch = set_switch("writes")
            assert not told
        with django_capture_on_commit_callbacks(execute=True):
            end_switch(switch)
    finally:
        switches_changed.disconnect(receive)
    assert len(set(told)) == 2
    assert None not in told


def test_what_cannot_be_told_is_switched_all_the_same(away, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        set_switch("writes")
    assert Board().current().writes is not None


def test_users_models_and_services_are_found_by_name_and_by_object():
    ada = make_user("ada")
    account = ServiceAccount.objects.create(name="nightly", user=ada)
    assert set_switch("user", ada).target == set_switch("user", "ada").target == str(ada.pk)
    assert set_switch("user", "ada").name == "ada"
    for target in (account, "nightly", account.client_id):
        switch = set_switch("service", target)
        assert (switch.target, switch.name) == (account.client_id, "nightly")
    assert set_switch("model", Author).target == set_switch("model", "TestApp.Author").target == "testapp.author"
    assert set_switch("model", "testapp").target == "testapp"
    assert set_switch("action", "TestApp.Book.withDraw").target == "testapp.book.withDraw"
    assert set_switch("action", "delete_selected").target == "delete_selected"


@pytest.mark.parametrize(
    ("kind", "target", "message"),
    [
        ("tols", "x", "no kind of switch 'tols'. Did you mean 'tool'?"),
        ("everything", "x", "has no target"),
        ("tool", "", "Name the tool"),
        ("user", "nobody", "no user 'nobody'"),
        ("service", "nobody", "no service account 'nobody'"),
        ("model", "testapp.autor", "Did you mean 'testapp.author'?"),
        ("tool", "x" * 256, "too long"),
    ],
)
def test_what_is_not_there_is_refused(kind, target, message):
    with pytest.raises(ValueError, match="(?i)" + message.replace("?", r"\?")):
        set_switch(kind, target)
    assert not Switch.objects.exists()


def test_a_switch_that_would_never_act_is_refused():
    now = timezone.now()
    with pytest.raises(ValueError, match="end after it begins"):
        set_switch("writes", until=now - timedelta(seconds=1))
    with pytest.raises(ValueError, match="end after it begins"):
        set_switch("writes", begins=now + timedelta(hours=2), until=now + timedelta(hours=1))


def test_a_name_is_told_once_and_the_text_of_a_row_says_which():
    make_user("ada")
    assert str(set_switch("user", "ada")) == "user ada"
    assert str(set_switch("tool", "get_record")) == "tool get_record"
    assert str(set_switch("everything")) == "everything"


def test_the_waits_leave_room_in_the_five_seconds():
    assert POLL + Board.LOOK + PATIENCE <= 5


@pytest.mark.parametrize(
    ("kind", "target"),
    [("tool", "run_action"), ("model", "testapp"), ("action", "testapp.book.publish"), ("action", "publish")],
)
def test_a_call_is_off_by_its_tool_its_model_or_its_action(kind, target):
    off = Off((Switch(kind=kind, target=target),))
    assert off.call("run_action", "testapp.book", "publish", read_only=False)
    assert not off.call("other", "", "", read_only=True)
