"""A log of calls with an incident in it, for tests, screenshots and measurements: :func:`log_incident`.

At 14:05 of the last day one client began to fail, for a quarter of an hour. One tool has been slow since Tuesday, one
call took half a minute, and some names are as long or as bad as names can be.
"""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import islice
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from mcp_django.context.call_record import CallRecord
from mcp_django.operating.call_log_storage import row_of, store

BATCH: Final = 1_000
# Of the calls of a week, so many are those of the week before.
BEFORE: Final = 6
LONG: Final = "Quarterly reconciliation assistant of the finance department"
EVIL: Final = "<b>Bold</b> & co"
# Client id, name, host, weight.
CLIENTS: Final = [
    ("https://claude.ai/oauth/mcp-oauth-client-metadata", "Claude", "claude.ai", 40),
    ("codex-cli-7f3a", "Codex", "", 22),
    ("chatgpt-connector", "ChatGPT", "chatgpt.com", 16),
    ("cursor-ide", "Cursor", "", 9),
    ("finance-assistant", LONG, "", 6),
    ("bold", EVIL, "", 3),
    ("service-9d21c0ffee12ab34", "nightly report", "", 4),
]
SERVICE: Final = CLIENTS[-1][0]
# Name of the tool, weight, median duration in ms, whether it can change data.
TOOLS: Final = [
    ("query_records", 38, 22.0, False),
    ("get_record", 20, 8.0, False),
    ("aggregate_records", 12, 45.0, False),
    ("search", 10, 60.0, False),
    ("list_models", 6, 3.0, False),
    ("update_record", 6, 34.0, True),
    ("create_record", 4, 40.0, True),
    ("run_action", 2, 120.0, True),
    ("recompute_the_margins_of_all_orders_of_the_current_quarter_x", 2, 210.0, True),
]
SLOW: Final = "aggregate_records"
MODELS: Final = ["shop.order", "shop.product", "shop.customer", "places.city", "shop.category"]
USERS: Final = [
    "ada",
    "grace",
    "linus",
    "margaret",
    "warehouse",
    "anneliese.von-der-hohenschwangau-und-zu-lichtenstein@example",
]
# Calls of an hour of the day, as shares of the busiest.
HOURS: Final = [2, 1, 1, 1, 1, 2, 4, 9, 20, 34, 40, 38, 30, 36, 40, 38, 33, 24, 14, 9, 7, 5, 4, 3]


@dataclass(frozen=True)
class Incident:
    """What :func:`log_incident` stored: when the client failed and who it is, since when the tool is slow, and the ids
    of the first failed call and of the one that took 30 s."""

    begins: datetime
    ends: datetime
    client_id: str
    client_name: str
    slow_tool: str
    slow_since: datetime
    first_failed: str
    timed_out: str
    calls: int


def log_incident(now: datetime | None = None, calls: int = 50_000, seed: int = 1) -> Incident:
    """Store so many calls that end now, and return what is wrong with them.

    The incident is today's once it has begun, else yesterday's; it goes on for a quarter of an hour, or until now.
    """
    chance = random.Random(seed)
    now = timezone.localtime(now or timezone.now())
    day = (now if now.time() >= time(14, 5, 10) else now - timedelta(days=1)).date()
    begins = timezone.make_aware(datetime.combine(day, time(14, 5)), now.tzinfo)
    tuesday = (now - timedelta(days=(now.weekday() - 1) % 7 or 7)).date()
    # The week before the last seven days has none of it, also on a Tuesday.
    slow_since = max(timezone.make_aware(datetime.combine(tuesday, time(9)), now.tzinfo), now - timedelta(days=7))
    ends = min(begins + timedelta(minutes=15), now)
    failing = 240 * calls // 50_000 + 1
    first = _call(chance, begins + timedelta(seconds=3), slow_since, CLIENTS[1])
    first.tool, first.outcome, first.detail = "query_records", "error:-32603", ""
    first.error_id, first.method = f"{chance.getrandbits(48):012x}", "tools/call"
    outlier = _call(chance, begins - timedelta(hours=3, minutes=11), slow_since, CLIENTS[0])
    outlier.tool, outlier.outcome, outlier.duration = "query_records", "error:timeout", 30_004.2
    records = [first, outlier]
    for _ in range(failing):
        record = _call(
            chance,
            begins + timedelta(seconds=4) + (ends - begins - timedelta(seconds=5)) * chance.random(),
            slow_since,
            CLIENTS[1],
        )
        if chance.random() < 0.92:
            record.outcome = chance.choice(["tool_error", "tool_error", "tool_error", "error:-32603"])
            record.error_id = f"{chance.getrandbits(48):012x}" if record.outcome != "tool_error" else ""
        records.append(record)
    times = _times(chance, now, calls - len(records))
    # Nobody else calls in the seconds in which it begins.
    beginning, minute = begins + timedelta(seconds=4), timedelta(minutes=1)
    times = (when - minute if begins <= when < beginning else when for when in times)
    rest = (_call(chance, when, slow_since) for when in times)
    with transaction.atomic():
        store([row_of(record) for record in records])
        while batch := list(islice(rest, BATCH)):
            store([row_of(record) for record in batch])
    client_id, client_name, *_ = CLIENTS[1]
    return Incident(begins, ends, client_id, client_name, SLOW, slow_since, first.id.hex, outlier.id.hex, calls)


def _times(chance: random.Random, now: datetime, calls: int) -> Iterator[datetime]:
    """Yield times of the last two weeks, most of them of the last, by day and in the hours of work."""
    hours = [now - timedelta(hours=number) for number in range(14 * 24)]
    weights = [
        HOURS[hour.hour] * (0.3 if hour.weekday() > 4 else 1) / (1 if number < 7 * 24 else BEFORE)
        for number, hour in enumerate(hours)
    ]
    for hour in chance.choices(hours, weights, k=calls):
        yield hour - timedelta(seconds=3600 * chance.random())


def _call(
    chance: random.Random, started: datetime, slow_since: datetime, client: tuple[str, str, str, int] | None = None
) -> CallRecord:
    client_id, client_name, client_host, _ = client or chance.choices(CLIENTS, [found[-1] for found in CLIENTS])[0]
    tool, _, median, writes = chance.choices(TOOLS, [found[1] for found in TOOLS])[0]
    slower = 22 if tool == SLOW and started >= slow_since else 1
    duration = median * slower * chance.lognormvariate(0, 0.6)
    user = chance.randrange(len(USERS))
    outcome = chance.choices(
        ["ok", "refused:scope", "refused:rate", "tool_error", "error:-32602", "asked", "cancelled"],
        [960, 10, 5, 12, 5, 5, 3],
    )[0]
    rows = chance.randrange(0, 50) if outcome == "ok" else 0
    values: dict[str, Any] = {"writes": True, "rows_changed": min(rows, 1)} if writes else {"rows_read": rows}
    return CallRecord(
        id=uuid.UUID(int=chance.getrandbits(128)),
        started=started,
        site="mcp",
        user=str(user + 1),
        username=USERS[user],
        kind="service" if client_id == SERVICE else "person",
        client_id=client_id,
        client_name=client_name,
        client_host=client_host,
        token=f"{user:02x}{client_id[:6].encode().hex()}"[:16],
        session="" if client_id == SERVICE else f"{started:%Y%m%d%p}{user}{client_id[:8]}"[:32],
        version="2025-11-25",
        method="tools/call",
        tool=tool,
        target=tool,
        model="" if tool == "list_models" else chance.choice(MODELS),
        size=rows * 180 + 240,
        duration=duration if outcome == "ok" else duration / 3,
        queries=chance.randrange(1, 6),
        query_time=duration * 0.7,
        outcome=outcome,
        detail="The scope mcp:write is missing." if outcome == "refused:scope" else "",
        trace=f"{chance.getrandbits(128):032x}",
        **values,
    )
