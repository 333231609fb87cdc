"""What waits for a stream, and how it is taken there."""

import asyncio

from mcp_django.transports import notification_queues
from mcp_django.transports.notification_queues import Mailbox, relay

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"


async def test_a_mailbox_holds_one_message_for_each_thing():
    mailbox = Mailbox()
    for number in range(1_000):
        mailbox.put(UPDATED, {"uri": f"a:{number % 2}"})
        mailbox.put(TOOLS, {})
    assert len(mailbox.take()) == 3
    assert mailbox.take() == []


async def test_a_mailbox_drops_updates_of_what_nobody_wants_any_more():
    mailbox = Mailbox()
    for uri in ("a:1", "a:2"):
        mailbox.put(UPDATED, {"uri": uri})
    mailbox.put(TOOLS, {})
    mailbox.keep_only(["a:2"])
    mailbox.put(UPDATED, {"uri": "a:3"})
    assert mailbox.take() == [(UPDATED, {"uri": "a:2"}), (TOOLS, {})]


def delivery(mailbox):
    """Return what takes messages out of the mailbox, and the list of what it took each time."""
    taken = []

    async def deliver():
        taken.append(mailbox.take())
        return bool(taken[-1])

    return deliver, taken


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_107_what_changes_again_before_the_next_delivery_is_told_once(monkeypatch):
    monkeypatch.setattr(notification_queues, "DELIVER_EVERY", 60)
    mailbox = Mailbox()
    deliver, taken = delivery(mailbox)
    relaying = asyncio.ensure_future(relay(mailbox, deliver))
    mailbox.put(TOOLS, {})
    await until(lambda: taken)
    for _ in range(3):
        mailbox.put(TOOLS, {})
        await asyncio.sleep(0.01)
    assert taken == [[(TOOLS, {})]]
    relaying.cancel()


async def test_a_quiet_stream_is_looked_after_now_and_then():
    mailbox = Mailbox()
    deliver, taken = delivery(mailbox)
    relaying = asyncio.ensure_future(relay(mailbox, deliver, 0.01))
    await until(lambda: len(taken) > 2)
    assert not any(taken)
    mailbox.end()
    await relaying


async def test_the_end_of_a_mailbox_is_that_of_its_relay_and_what_waits_is_told_before():
    mailbox = Mailbox()
    deliver, taken = delivery(mailbox)
    mailbox.put(TOOLS, {})
    relaying = asyncio.ensure_future(relay(mailbox, deliver))
    await asyncio.sleep(0)
    mailbox.end()
    await asyncio.wait_for(relaying, 10)
    assert [item for some in taken for item in some] == [(TOOLS, {})]
