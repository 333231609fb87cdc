"""What is seen in the moving picture: two questions to the example shop, and what its server answers to each call.

The questions and the calls are written here, as a person and a model would, and so is what the model makes of an
answer: its words are filled with the figures of the server.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestFormParams, ElicitResult, Implementation

from tests.e2e.python_client import TIMEOUT, Person
from tests.e2e.servers import Server

FIRST = "Is one carrier slower than the others?"
SECOND = "The newest delivered order from Germany arrived broken. Refund it."
REFUND = {"reason": "damaged"}
NAME = Implementation(name="Chat client", version="1.0")


def of_carriers(answer: dict[str, Any]) -> str:
    """Return what a model says of the shipments' average days by carrier."""
    days = {carrier.upper(): average for carrier, _count, average in answer["rows"]}
    slowest = max(days, key=lambda carrier: days[carrier])
    others = sorted(average for carrier, average in days.items() if carrier != slowest)
    return f"Yes: {slowest} takes {days[slowest]:.1f} days on average, the others {others[0]:.1f} to {others[-1]:.1f}."


@dataclass
class Step:
    """A call: its tool and arguments, what the server asked meanwhile, its answer, and what the model says then."""

    tool: str
    arguments: dict[str, Any]
    answer: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] | None = None
    given: dict[str, Any] = field(default_factory=dict)
    words: str = ""


@dataclass
class Conversation:
    first: list[Step] = field(default_factory=list)
    second: list[Step] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "questions": [FIRST, SECOND],
            "first": [asdict(step) for step in self.first],
            "second": [asdict(step) for step in self.second],
        }


async def hold(server: Server, username: str = "admin") -> Conversation:
    """Sign in with the official Python client and call the tools, agreeing to what is asked."""
    asked: list[dict[str, Any]] = []

    async def agree(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        asked.append({"message": params.message, "schema": params.requested_schema})
        return ElicitResult(action="accept", content=REFUND)

    person = Person(server, username)
    async with (
        httpx2.AsyncClient(auth=person.provider(), timeout=TIMEOUT) as http,
        Client(
            streamable_http_client(person.url, http_client=http), elicitation_callback=agree, client_info=NAME
        ) as client,
    ):

        async def call(tool: str, **arguments: Any) -> Step:
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content
            assert result.structured_content is not None
            step = Step(tool, arguments, result.structured_content)
            if asked:
                step.asked, step.given = asked.pop(), REFUND
            return step

        found = Conversation()
        found.first.append(
            await call(
                "aggregate_records",
                model="shop.shipment",
                aggregates=["count", "avg:delivered_at-shipped_at"],
                group_by=["carrier"],
            )
        )
        found.first[-1].words = of_carriers(found.first[-1].answer)
        orders = await call(
            "query_records",
            model="shop.order",
            filters={"status": "delivered", "country": "Germany"},
            fields=["number", "customer", "total"],
            ordering=["-created"],
            limit=1,
        )
        found.second.append(orders)
        [(pk, number, (_customer, name), total)] = orders.answer["rows"]
        found.second.append(await call("refund_shop_order", pks=[pk]))
        found.second[-1].words = f"Order {number} of {name} over {total} is refunded, with the reason “damaged”."
        return found
