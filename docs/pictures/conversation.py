"""What is seen in the moving picture: what a person asks of the example shop, and what its server answers to each call.

The questions and the calls are written here, as a person and a model would, and so is what the model makes of an
answer: its words are filled with the figures of the server.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestFormParams, ElicitResult, Implementation

from mcp_django.schema.consent import ConsentForm
from tests.e2e.python_client import TIMEOUT, Person
from tests.e2e.servers import Server

FIRST = "Is one carrier slower than the others?"
SECOND = "The newest delivered order from Germany arrived broken. Refund it."
THIRD = "Cancel all pending orders."
FOURTH = "No, I meant those of last week only! Take that back."
REFUND = {"reason": "damaged"}
CONSENT = {ConsentForm.FIELD: ConsentForm.YES}
NAME = Implementation(name="Chat client", version="1.0")


# As a model writes them.
CARRIERS = {"dhl": "DHL", "fedex": "FedEx", "post": "Post", "ups": "UPS"}
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def in_words(days: float) -> str:
    """Return a number of days up to twelve as a person says it: below five to the nearest half."""
    halves = round(days * 2) if days < 5 else round(days) * 2
    return NUMBERS[halves // 2] + (" and a half" if halves % 2 else "")


def days_of(answer: dict[str, Any]) -> dict[str, float]:
    """Return the shipments' average days by carrier, of an answer."""
    return {CARRIERS[carrier]: average for carrier, _count, average in answer["rows"]}


def of_carriers(answer: dict[str, Any]) -> str:
    """Return what a model says of the shipments' average days by carrier."""
    days = days_of(answer)
    slowest = max(days, key=lambda carrier: days[carrier])
    others = list(dict.fromkeys(in_words(days[carrier]) for carrier in sorted(days) if carrier != slowest))
    return f"Yes. {slowest} takes {in_words(days[slowest])} days on average, the others {' or '.join(others)}."


@dataclass
class Step:
    """A call: its tool and arguments, what the server asked meanwhile, its answer, and what the model says then.

    ``drawn`` is what the client makes of the answer: a chart or a table, of the answer's figures.
    """

    tool: str
    arguments: dict[str, Any]
    answer: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] | None = None
    given: dict[str, Any] = field(default_factory=dict)
    drawn: dict[str, Any] | None = None
    words: str = ""


@dataclass
class Part:
    """What a person asks, and what is done for it; ``caption`` names what it shows. ``afresh``: in an empty window."""

    question: str
    caption: str
    afresh: bool = False
    steps: list[Step] = field(default_factory=list)


@dataclass
class Conversation:
    reads: Part = field(default_factory=lambda: Part(FIRST, "asks"))
    refunds: Part = field(default_factory=lambda: Part(SECOND, "acts"))
    cancels: Part = field(default_factory=lambda: Part(THIRD, "shows", afresh=True))
    undoes: Part = field(default_factory=lambda: Part(FOURTH, "undoes"))

    def as_json(self) -> dict[str, Any]:
        return {"parts": [asdict(part) for part in (self.reads, self.refunds, self.cancels, self.undoes)]}


async def hold(server: Server, username: str = "admin") -> Conversation:
    """Sign in with the official Python client and call the tools, agreeing to what is asked."""
    asked: list[dict[str, Any]] = []

    async def agree(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        asked.append({"message": params.message, "schema": params.requested_schema})
        return ElicitResult(action="accept", content=answer_to(asked[-1]))

    person = Person(server, username)
    async with (
        httpx2.AsyncClient(auth=person.provider(), timeout=TIMEOUT) as http,
        Client(
            streamable_http_client(person.url, http_client=http), elicitation_callback=agree, client_info=NAME
        ) as client,
    ):

        async def call(part: Part, tool: str, **arguments: Any) -> Step:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            assert result.structured_content is not None
            step = Step(tool, arguments, result.structured_content)
            if asked:
                step.asked = asked.pop()
                step.given = answer_to(step.asked)
            part.steps.append(step)
            return step

        found = Conversation()
        shipments = await call(
            found.reads,
            "aggregate_records",
            model="shop.shipment",
            aggregates=["count", "avg:delivered_at-shipped_at"],
            group_by=["carrier"],
        )
        shipments.words = of_carriers(shipments.answer)
        bars = sorted(days_of(shipments.answer).items(), key=lambda bar: -bar[1])
        shipments.drawn = {"kind": "chart", "title": "Days from shipping to delivery, on average", "bars": bars}
        orders = await call(
            found.refunds,
            "query_records",
            model="shop.order",
            filters={"status": "delivered", "country": "Germany"},
            fields=["number", "customer", "total"],
            ordering=["-created"],
            limit=1,
        )
        [(pk, number, (_customer, name), total)] = orders.answer["rows"]
        orders.drawn = {
            "kind": "table",
            "columns": ["Order", "Customer", "Total"],
            "rows": [[number, name, total]],
        }
        refund = await call(found.refunds, "refund_shop_order", pks=[pk])
        refund.words = f"Done. {name} gets {total} back for order {number}, because it arrived damaged."
        cancellation = await call(
            found.cancels,
            "update_record",
            model="shop.order",
            filters={"status": "pending"},
            values={"status": "cancelled"},
        )
        cancellation.words = (
            f"Done. {cancellation.answer['rows']} orders are cancelled. If that was wrong, I can take it back."
        )
        undo = await call(found.undoes, "undo_change", change=cancellation.answer["change"])
        undo.words = f"Taken back. The {undo.answer['rows']} orders are pending again."
        return found


def answer_to(asked: dict[str, Any]) -> dict[str, str]:
    """Return what the person fills in: the reason of a refund, or that they agree."""
    return CONSENT if ConsentForm.FIELD in asked["schema"]["properties"] else REFUND
