"""What it takes to write several rows: the calls, confirmations and tokens, in one call and in one for each step."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.tokens import count_tokens

from .measures import text_of
from .shop import Endpoint

Call = tuple[str, Mapping[str, Any]]

PRICES: Final = {
    "KIT-0001": "12.50",
    "KIT-0002": "80",
    "KIT-0010": "7.90",
    "OFF-0019": "24",
    "OUT-0026": "199",
    "GIF-0033": "31.20",
}
# The customer who is there twice.
FORMER, PRESENT = "Ada Ibarra", "Ada Evans"
HER_ROWS: Final = {"filters": {"customer": FORMER}, "values": {"customer": PRESENT}}


@dataclass(frozen=True)
class Job:
    """Something to write: the calls that do it at once, and those that do it step by step."""

    title: str
    at_once: tuple[Call, ...]
    in_steps: tuple[Call, ...]


@dataclass
class Cost:
    """What calls took: a confirmation is a second call, as of clients that cannot ask their user."""

    calls: int = 0
    confirmations: int = 0
    texts: list[str] = field(default_factory=list)


JOBS: Final = {
    "prices": Job(
        "six prices by SKU",
        at_once=(
            (
                "update_record",
                {
                    "model": "shop.product",
                    "by": ["sku"],
                    "rows": [{"sku": sku, "price": price} for sku, price in PRICES.items()],
                },
            ),
        ),
        in_steps=tuple(
            ("update_record", {"model": "shop.product", "pk": sku, "values": {"price": price}})
            for sku, price in PRICES.items()
        ),
    ),
    "merge": Job(
        "a merge of two customers",
        at_once=(
            (
                "write_records",
                {
                    "writes": [
                        {"op": "update", "model": "shop.order", **HER_ROWS},
                        {"op": "update", "model": "shop.review", **HER_ROWS},
                        {"op": "delete", "model": "shop.customer", "pk": FORMER},
                    ]
                },
            ),
        ),
        in_steps=(
            ("update_record", {"model": "shop.order", **HER_ROWS}),
            ("update_record", {"model": "shop.review", **HER_ROWS}),
            ("delete_record", {"model": "shop.customer", "pk": FORMER}),
        ),
    ),
}


def writes(endpoint: Endpoint) -> dict[str, Any]:
    """Return the tokens of each job at once, by name, and under ``jobs`` what each way took. Nothing stays written."""
    costs = {
        (name, way): _cost(endpoint, calls)
        for name, job in JOBS.items()
        for way, calls in (("at_once", job.at_once), ("in_steps", job.in_steps))
    }
    tokens = iter(count_tokens([text for cost in costs.values() for text in cost.texts]))
    jobs: dict[str, dict[str, Any]] = {name: {} for name in JOBS}
    for (name, way), cost in costs.items():
        jobs[name][way] = {
            "calls": cost.calls,
            "confirmations": cost.confirmations,
            "tokens": sum(next(tokens) for _ in cost.texts),
        }
    return {**{name: job["at_once"]["tokens"] for name, job in jobs.items()}, "jobs": jobs}


def _cost(endpoint: Endpoint, calls: Iterable[Call]) -> Cost:
    """Make the calls, confirm what asks, and undo them all."""
    from django.db import transaction

    cost = Cost()
    with transaction.atomic():
        for tool, arguments in calls:
            answer = _answered(endpoint, cost, tool, arguments)
            if answer.get("confirmation_required"):
                cost.confirmations += 1
                _answered(endpoint, cost, tool, {**arguments, "confirm_token": answer["confirm_token"]})
        transaction.set_rollback(True)
    return cost


def _answered(endpoint: Endpoint, cost: Cost, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    result = endpoint.answer(tool, arguments)
    if result.get("isError"):
        raise ValueError(f"{tool} {json.dumps(arguments)} is refused: {text_of(result)}")
    cost.calls += 1
    cost.texts += [json.dumps(arguments), text_of(result)]
    answer: Mapping[str, Any] = result["structuredContent"]
    return answer
