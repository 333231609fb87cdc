"""The official SDK's server over the same rows: ten tools like those of the endpoint, no token, no permission.

Its tools are plain functions, which the SDK runs in worker threads that keep their database connections.
"""

from typing import Annotated, Any

from asgiref.sync import sync_to_async
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.types import SubscriptionsListenRequestParams, ToolAnnotations
from pydantic import Field
from starlette.applications import Starlette

from . import rows
from .data import READER_PK

READ = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
WRITE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)

Model = Annotated[str, Field(description="Label of a model, such as shop.order")]
Pk = Annotated[int, Field(description="Primary key of the record")]
Values = Annotated[dict[str, Any], Field(description="Values by field name")]

# What reads a page, by the model: each as the endpoint reads that model.
PAGES = {
    "bench.article": rows.page,
    "bench.ownarticle": rows.own_page,
    "bench.computedarticle": rows.computed_page,
    "bench.serializedarticle": rows.serialized_page,
}
# By itself the server takes 1,024 streams.
MAX_STREAMS = 100_000

bus = InMemorySubscriptionBus()
server = MCPServer("bench", log_level="WARNING", subscriptions=bus)
server._lowlevel_server.add_request_handler(
    "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(bus, max_subscriptions=MAX_STREAMS)
)


@server.tool(annotations=READ)
def list_models(search: str = "") -> dict[str, Any]:
    """List the models that you may see. Start here."""
    return {"models": []}


@server.tool(annotations=READ)
def describe_model(model: Model) -> dict[str, Any]:
    """Describe the fields, filters, ordering and actions of one model."""
    return {"model": model}


@server.tool(annotations=READ)
def query_records(
    model: Model,
    filters: Annotated[dict[str, Any] | None, Field(description="Values by field and lookup")] = None,
    search: str = "",
    ordering: list[str] | None = None,
    fields: list[str] | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Return one page of the records of a model; pages end with a cursor."""
    return PAGES[model](str((filters or {})["status"]), limit)


@server.tool(annotations=READ)
def get_record(model: Model, pk: Pk, fields: list[str] | None = None) -> dict[str, Any]:
    """Return one record by its primary key."""
    return rows.record(pk)


@server.tool(annotations=READ)
def aggregate_records(
    model: Model, aggregates: list[str], group_by: list[str] | None = None, filters: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Count, sum and average records, in groups."""
    return rows.totals(str((filters or {})["published__gte"]))


@server.tool(annotations=WRITE)
def create_record(model: Model, values: Values) -> dict[str, Any]:
    """Create a record."""
    return {"model": model}


@server.tool(annotations=WRITE)
async def update_record(model: Model, pk: Pk, values: Values, context: Context) -> dict[str, Any]:
    """Change fields of a record."""
    if model == "bench.article":
        saved = await sync_to_async(rows.change_article, thread_sensitive=False)(READER_PK, pk, values)
    else:
        saved = await sync_to_async(rows.change_author, thread_sensitive=False)(pk, values)
    await context.notify_resource_updated(f"django://{model.replace('.', '/')}/{pk}")
    return saved


@server.tool(annotations=WRITE)
def delete_record(model: Model, pk: Pk, confirmation: str = "") -> dict[str, Any]:
    """Delete a record; the first call returns what goes with it and a confirmation token."""
    return {"model": model}


@server.tool(annotations=WRITE)
def run_action(model: Model, action: str, pks: list[int], arguments: Values | None = None) -> dict[str, Any]:
    """Run an action of the admin on records."""
    return {"model": model}


@server.tool(annotations=WRITE)
def publish_bench_article(pks: list[int]) -> dict[str, Any]:
    """Publish the selected articles."""
    return {"model": "bench.article"}


def application() -> Starlette:
    """Return the ASGI application: Streamable HTTP without sessions, answers as JSON."""
    return server.streamable_http_app(stateless_http=True, json_response=True)


def streaming_application() -> Starlette:
    """Return the ASGI application with streams, and with sessions in the handshake era."""
    return server.streamable_http_app(max_sessions=MAX_STREAMS)
