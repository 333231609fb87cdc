"""The pictures of the overview."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from mcp_django.console.overview_charts import HEIGHT, WIDTH, Step, bars, lines, table

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SHARES = {"p50": 0.5, "p95": 0.95}


def step(number: int, durations: list[float] | None = None, **counts: int) -> Step:
    begins = BEGIN + timedelta(hours=number)
    return Step(begins, begins + timedelta(hours=1), Counter(counts), durations or [])


def test_groups_stand_upon_each_other() -> None:
    found = bars([step(0, ok=3, failed=1), step(1), step(2, refused=2)])
    assert [(bar.group, bar.count) for bar in found] == [("ok", 3), ("failed", 1), ("refused", 2)]
    assert [(float(bar.y), float(bar.height)) for bar in found] == [
        (HEIGHT / 4, HEIGHT * 3 / 4),
        (0.0, HEIGHT / 4),
        (HEIGHT / 2, HEIGHT / 2),
    ]
    assert float(found[2].x) > WIDTH * 2 / 3


def test_no_calls_have_no_bars() -> None:
    assert bars([step(0), step(1)]) == []
    assert bars([]) == []


def test_lines_leave_out_steps_without_calls() -> None:
    found, most = lines([step(0, [10.0, 20.0]), step(1), step(2, [40.0])], SHARES)
    assert most == 40
    assert [line.name for line in found] == ["p50", "p95"]
    assert found[0].points == f"120.00,{HEIGHT * 3 / 4:.2f} 600.00,0.00"
    assert found[1].values == [20.0, 0.0, 40.0]


def test_calls_that_took_no_time_lie_on_the_axis() -> None:
    found, most = lines([step(0, [0.0])], SHARES)
    assert (most, found[0].points) == (0.0, f"360.00,{HEIGHT}.00")


def test_the_table_says_what_the_pictures_show_newest_first() -> None:
    first, last = step(0, [1.0, 3.0], ok=1, failed=1), step(2, [4.0], refused=1)
    rows = table([first, step(1), last], SHARES)
    assert [row["step"] for row in rows] == [last, first]
    assert {name: rows[1][name] for name in ("calls", "ok", "open", "refused", "failed", "p50", "p95")} == {
        "calls": 2,
        "ok": 1,
        "open": 0,
        "refused": 0,
        "failed": 1,
        "p50": 1.0,
        "p95": 3.0,
    }
