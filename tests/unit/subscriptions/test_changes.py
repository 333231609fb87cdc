import pytest

from mcp_django.subscriptions.changes import MAX_ROWS, MAX_URIS, Changes


def rows(label, *pks):
    changes = Changes()
    changes.add_rows(label, pks)
    return changes


def sent(changes):
    """What a process that hears the messages knows."""
    found = Changes()
    for topic, payload in changes.messages():
        found.merge(Changes.read(topic, payload))
    return found


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
    other.add_rows("shop.order", None)
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
    changes.add_rows("shop.customer", None)
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
    changes = Changes.read("changes", payload)
    assert changes.everything
    assert sent(changes).everything
