import gc
import os

import pytest
from django.db import DatabaseError, transaction

from mcp_django.subscriptions import changes as changes_module
from mcp_django.subscriptions.changes import MAX_ROWS, MAX_URIS, Changes, Outbox, after_commit
from tests.listening import Recorder, rolled_back


def rows(label, *pks):
    changes = Changes()
    changes.add_rows(label, pks)
    return changes


def sent(changes):
    """What a process that hears the messages knows."""
    found = Changes()
    for topic, payload in changes.messages():
        found.read(topic, payload)
    return found


@pytest.fixture
def hub(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(changes_module, "hub", recorder)
    return recorder


# Sets of changes


def test_what_changes_twice_is_told_once():
    changes = rows("shop.order", "1", "2")
    changes.add_rows("shop.order", ["1"])
    changes.merge(rows("shop.order", "2", "3"))
    assert changes.rows == {"shop.order": {"1", "2", "3"}}
    assert not Changes()


def test_many_rows_of_a_model_become_any_rows():
    changes = Changes()
    for number in range(MAX_ROWS + 1):
        assert changes.rows.get("shop.order", set()) is not None
        changes.add_rows("shop.order", [str(number)])
    assert changes.rows == {"shop.order": None}
    changes.merge(rows("shop.order", "1"))
    assert changes.rows == {"shop.order": None}


def test_any_rows_take_the_place_of_known_ones_when_put_together():
    changes, other = rows("shop.order", "1"), Changes()
    other.add_model("shop.order")
    changes.merge(other)
    assert changes.rows == {"shop.order": None}


def test_many_resources_become_everything():
    changes = Changes()
    changes.add_uris(f"shop://{number}" for number in range(MAX_URIS + 1))
    assert changes.everything
    assert not changes.uris


def test_messages_say_the_same_and_none_is_long():
    changes = rows("shop.order", *(f"{number}" for number in range(MAX_ROWS)))
    changes.add_rows("shop.text", ["x" * 900 + str(number) for number in range(100)])
    changes.add_model("shop.customer")
    changes.add_uris(["shop://a", "shop://b"])
    changes.lists |= {("tools", None), ("tools", "staff"), ("prompts", "staff")}
    assert all(len(str(payload)) < 40_000 for _, payload in changes.messages())
    found = sent(changes)
    assert (found.rows, found.uris, found.lists) == (changes.rows, changes.uris, changes.lists)
    assert not found.everything


@pytest.mark.parametrize(
    "payload",
    ["text", None, [1], {"rows": 3}, {"rows": {"a.b": 3}}, {"uris": 3}],
    ids=["text", "null", "list", "rows", "keys", "uris"],
)
def test_a_message_that_is_not_understood_may_mean_anything(payload):
    changes = Changes()
    changes.read("changes", payload)
    assert changes.everything
    assert sent(changes).everything


# Transactions


@pytest.fixture
def told(hub):
    return lambda: hub.rows().get("a.b", [])


def change(pk, using="default", **options):
    after_commit(using, lambda changes: changes.add_rows("a.b", [pk]), **options)


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_a_change_is_told_at_once(told):
    change("1")
    assert told() == ["1"]


@pytest.mark.django_db(transaction=True)
def test_104_a_change_is_told_when_it_is_committed_and_once(told, hub):
    with transaction.atomic():
        change("1")
        change("1")
        with transaction.atomic():
            change("2")
        assert told() == []
    assert told() == ["1", "2"]
    with transaction.atomic():
        change("3")
    assert told() == ["1", "2", "3"]


@pytest.mark.django_db(transaction=True)
def test_104_a_rolled_back_change_tells_nobody(told):
    with rolled_back():
        change("1")
    assert told() == []
    with transaction.atomic():
        change("2")
    assert told() == ["2"]


@pytest.mark.django_db(transaction=True)
def test_104_a_savepoint_that_is_rolled_back_tells_nobody_of_what_was_within(told):
    with transaction.atomic():
        change("before")
        for number in range(2):
            with rolled_back():
                change(f"within {number}")
                with transaction.atomic():
                    change(f"deeper {number}")
            change(f"after {number}")
        with transaction.atomic():
            change("kept")
    assert told() == ["after 0", "after 1", "before", "kept"]


@pytest.mark.django_db(transaction=True)
def test_104_a_block_without_a_savepoint_shares_the_fate_of_the_transaction(told):
    with rolled_back(), transaction.atomic(savepoint=False):
        change("1")
    with transaction.atomic():
        with transaction.atomic(savepoint=False):
            change("2")
        with transaction.atomic(savepoint=False):
            change("3")
    assert told() == ["2", "3"]


@pytest.mark.django_db(transaction=True)
def test_many_changes_of_one_transaction_take_one_place_in_it(told):
    connection = transaction.get_connection()
    with transaction.atomic():
        for number in range(5000):
            change(str(number))
        assert len(connection.run_on_commit) == 1
    assert told() is None


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_of_a_transaction_that_was_rolled_back(told):
    with rolled_back():
        change("1")
    gc.collect()
    assert not [item for item in gc.get_objects() if isinstance(item, changes_module._Batch)]


@pytest.mark.django_db
def test_callbacks_that_a_test_runs_itself_tell_as_a_commit_does(told, django_capture_on_commit_callbacks):
    for number in range(2):
        with django_capture_on_commit_callbacks(execute=True) as callbacks:
            change(str(number))
        assert len(callbacks) == 1
    assert told() == ["0", "1"]


@pytest.mark.django_db(transaction=True)
def test_with_autocommit_turned_off_by_hand_only_the_project_itself_tells(told):
    transaction.set_autocommit(False)
    try:
        change("1")
        change("2", explicit=True)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert told() == ["2"]


@pytest.mark.django_db(transaction=True)
async def test_a_coroutine_tells_at_once(told):
    change("1", explicit=True)
    assert told() == ["1"]


def test_a_database_that_is_not_there_has_no_transaction(told, monkeypatch):
    def fail(*args, **kwargs):
        raise DatabaseError

    monkeypatch.setattr(transaction, "on_commit", fail)
    change("1")
    assert told() == ["1"]


@pytest.mark.django_db(transaction=True)
def test_a_hub_that_fails_does_not_fail_the_commit(told, hub, monkeypatch, caplog):
    def fail(*args):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(hub, "soon", fail)
        with transaction.atomic():
            change("1")
    assert "on_commit" in caplog.text
    change("2")
    assert told() == ["1", "2"]


# The outbox


class Slow(Recorder):
    """Calls later."""

    def __init__(self):
        super().__init__()
        self.callbacks = []

    def soon(self, callback):
        if callback not in self.callbacks:
            self.callbacks.append(callback)


def test_107_a_burst_is_told_as_one(monkeypatch):
    hub, box = Slow(), Outbox()
    monkeypatch.setattr(changes_module, "hub", hub)
    for _ in range(10_000):
        box.put(rows("a.b", "1"))
    assert len(hub.callbacks) == 1
    hub.callbacks.pop()()
    assert hub.messages == [("changes", {"rows": {"a.b": ["1"]}})]
    box.put(rows("a.b", "2"))
    assert len(hub.callbacks) == 1


def test_where_nobody_can_hear_nothing_is_kept(hub):
    hub.idle, box = True, Outbox()
    box.put(rows("a.b", "1"))
    hub.idle = False
    box.send()
    assert hub.messages == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_the_child_of_a_fork_does_not_tell_what_its_parent_will(monkeypatch):
    hub = Slow()
    monkeypatch.setattr(changes_module, "hub", hub)
    changes_module.outbox.put(rows("a.b", "1"))
    changes_module.outbox._lock.acquire()
    try:
        changes_module.outbox.reset()
        changes_module.outbox.put(rows("a.b", "2"))
        changes_module.outbox.send()
    finally:
        changes_module.outbox.reset()
    assert hub.messages == [("changes", {"rows": {"a.b": ["2"]}})]
