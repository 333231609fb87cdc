"""The summary of a run, as a document and as text."""

import itertools
import platform
from collections import Counter, defaultdict
from typing import Any

from .faults import Happened
from .promises import LATE, PROMISES, Book

# Seconds after a fault that count as its time.
AFTERWARDS = 10
ANSWERED = "answered"
OUTCOMES = ("refused", "no answer", "tool error")


def of_requests(book: Book) -> dict[str, Any]:
    """Return by kind of request how many there were, how they went and how long they took."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    times: dict[str, list[float]] = defaultdict(list)
    for _, what, outcome, seconds in book.requests:
        outcomes[what][outcome] += 1
        if outcome == ANSWERED:
            times[what].append(seconds)
    found = {}
    for what, counted in sorted(outcomes.items()):
        ordered = sorted(times[what]) or [0.0]
        found[what] = {
            **counted,
            "median_ms": round(ordered[len(ordered) // 2] * 1000),
            "p99_ms": round(ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)] * 1000),
            "longest_ms": round(ordered[-1] * 1000),
        }
    return found


def of_faults(book: Book, happened: list[Happened]) -> list[dict[str, Any]]:
    """Return for each fault what requests met in its time, and the longest time without any answer."""
    found = []
    for fault in happened:
        end = (fault.ended or book.now()) + AFTERWARDS
        inside = [request for request in book.requests if fault.began <= request[0] <= end and request[1] != "stream"]
        outcomes = Counter(outcome for _, _, outcome, _ in inside)
        moments = [fault.began, *(moment for moment, _, outcome, _ in inside if outcome == ANSWERED), end]
        found.append(
            {
                "name": fault.name,
                "at": round(fault.began, 1),
                "seconds": round(fault.ended - fault.began, 1),
                "said": fault.said,
                "requests": len(inside),
                **{outcome: number for outcome, number in outcomes.items() if outcome in OUTCOMES},
                "slowest_answer": round(
                    max((took for *_, outcome, took in inside if outcome == ANSWERED), default=0), 1
                ),
                "longest_silence": round(max(b - a for a, b in itertools.pairwise(moments)), 1),
            }
        )
    return found


def of_streams(book: Book) -> dict[str, Any]:
    """Return by era how many streams there were, and the bytes of one in a minute."""
    found = {}
    for era, streams in sorted(book.streams.items()):
        size, seconds = (sum(numbers) for numbers in zip(*streams, strict=True))
        found[era] = {"streams": len(streams), "bytes_a_minute": round(size / max(seconds, 1) * 60)}
    return found


def document(book: Book, happened: list[Happened], costs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return everything that the run found."""
    seconds = book.now()
    answered = sum(outcome == ANSWERED for _, _, outcome, _ in book.requests)
    return {
        "python": platform.python_version(),
        "seconds": round(seconds),
        "requests": len(book.requests),
        "answered": answered,
        # On a machine whose processors are all taken, a rate says nothing of the app.
        "answers_per_second": round(answered / seconds, 1) if costs["cores_are_free"] else None,
        "promises": {name: tally.summary() for name, tally in book.tallies.items()},
        "faults": of_faults(book, happened),
        "kinds": of_requests(book),
        "streams": of_streams(book),
        "notes": dict(book.notes),
        "said": dict(book.said.most_common(25)),
        "costs": costs,
        **more,
    }


def text(found: dict[str, Any]) -> str:
    """Return the document as text."""
    lines = [
        f"{found['minutes']} minutes, {found['clients']} clients, {found['requests']:,} requests, "
        f"{found['answered']:,} answered; from {found['before'][:8]} to {found['now']}; Python {found['python']}",
        "",
        f"| promise | checked | lost | late (> {LATE:.0f} s) | median s | p99 s | longest s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, tally in found["promises"].items():
        numbers = [
            tally[key] for key in ("checked", "lost", "late", "median_seconds", "p99_seconds", "longest_seconds")
        ]
        lines.append(f"| {PROMISES[name]} | {' | '.join(map(str, numbers))} |")
    lines += [
        "",
        "| fault | at s | requests | refused | no answer | tool error | slowest s | silence s | |",
        "|---" * 9 + "|",
    ]
    for fault in found["faults"]:
        numbers = [
            fault["at"],
            fault["requests"],
            *(fault.get(kind, 0) for kind in OUTCOMES),
        ]
        numbers += [fault["slowest_answer"], fault["longest_silence"]]
        lines.append(f"| {fault['name']} | {' | '.join(map(str, numbers))} | {fault['said']} |")
    lines += ["", "| call | queries | web worker ms |", "|---|---|---|"]
    for name, work in found["work"].items():
        lines.append(f"| {name} | {work['queries']} | {work['web_worker_ms']} |")
    lines += ["", "Streams:"]
    lines += [
        f"  {era}: {one['streams']} opened, {one['bytes_a_minute']} bytes a minute each"
        for era, one in found["streams"].items()
    ]
    lines += ["", "Ended by themselves:", *(f"  {name}: {count}" for name, count in found["ended"].items())]
    lines += ["", "Notes:", *(f"  {name}: {count}" for name, count in found["notes"].items())]
    costs = found["costs"]
    lines += ["", "The most that was seen:", *(f"  {name}: {value}" for name, value in costs["most"].items())]
    lines.append(
        f"  MiB of all web workers: {costs['web_mib_first_third']} in the first third of the run, "
        f"{costs['web_mib_last_third']} in the last"
    )
    lines += [
        "",
        f"{costs['processors']} processors, {costs['idle_part']:.0%} idle; "
        f"load {costs['load_at_the_beginning']} before.",
    ]
    if found["answers_per_second"] is None:
        lines.append("No rate: the processors were taken, so it would tell of the machine.")
    else:
        lines.append(f"{found['answers_per_second']} answers a second; clients pause {found['pause']} s between calls.")
    if found["tracebacks"]:
        lines += ["", "Tracebacks in logs:", *(f"  {name}: {count}" for name, count in found["tracebacks"].items())]
    for name, tally in found["promises"].items():
        lines += [f"LOST ({name}): {what}" for what in tally["what_was_lost"]]
    return "\n".join(lines)
