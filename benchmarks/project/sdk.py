"""The official SDK's server over the same rows: ten tools like those of the endpoint.

Its tools are plain functions, which the SDK runs in worker threads that keep their database connections. It is measured
without a token, and with the endpoint's own tokens: looked up in the same tables, with the same permission asked.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated, Any, Final

from asgiref.sync import sync_to_async
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.types import SubscriptionsListenRequestParams, ToolAnnotations
from oauth2_provider.models import get_access_token_model
from pydantic import AnyHttpUrl, Field
from starlette.applications import Starlette

from . import rows
from .data import READER_PK
from .settings import BASE_URL, ENDPOINT

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


def list_models(search: str = "") -> dict[str, Any]:
    """List the models that you may see. Start here."""
    return {"models": []}


def describe_model(model: Model) -> dict[str, Any]:
    """Describe the fields, filters, ordering and actions of one model."""
    return {"model": model}


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


def get_record(model: Model, pk: Pk, fields: list[str] | None = None) -> dict[str, Any]:
    """Return one record by its primary key."""
    return rows.record(pk)


def aggregate_records(
    model: Model, aggregates: list[str], group_by: list[str] | None = None, filters: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Count, sum and average records, in groups."""
    return rows.totals(str((filters or {})["published__gte"]))


def create_record(model: Model, values: Values) -> dict[str, Any]:
    """Create a record."""
    return {"model": model}


async def update_record(model: Model, pk: Pk, values: Values, context: Context) -> dict[str, Any]:
    """Change fields of a record."""
    if model == "bench.article":
        saved = await sync_to_async(rows.change_article, thread_sensitive=False)(READER_PK, pk, values)
    else:
        saved = await sync_to_async(rows.change_author, thread_sensitive=False)(pk, values)
    await context.notify_resource_updated(f"django://{model.replace('.', '/')}/{pk}")
    return saved


def delete_record(model: Model, pk: Pk, confirmation: str = "") -> dict[str, Any]:
    """Delete a record; the first call returns what goes with it and a confirmation token."""
    return {"model": model}


def write_records(writes: list[dict[str, Any]], confirmation: str = "") -> dict[str, Any]:
    """Create, update and delete records in one transaction."""
    return {"written": len(writes)}


def undo_change(change: int) -> dict[str, Any]:
    """Take back what one call has written."""
    return {"change": change}


def run_action(model: Model, action: str, pks: list[int], arguments: Values | None = None) -> dict[str, Any]:
    """Run an action of the admin on records."""
    return {"model": model}


def publish_bench_article(pks: list[int]) -> dict[str, Any]:
    """Publish the selected articles."""
    return {"model": "bench.article"}


TOOLS: Final[dict[Callable[..., Any], ToolAnnotations]] = {
    list_models: READ,
    describe_model: READ,
    query_records: READ,
    get_record: READ,
    aggregate_records: READ,
    create_record: WRITE,
    update_record: WRITE,
    delete_record: WRITE,
    write_records: WRITE,
    undo_change: WRITE,
    run_action: WRITE,
    publish_bench_article: WRITE,
}


class Verifier(TokenVerifier):
    """Checks a token as the bare views do: in the toolkit's table, for this resource, with the user's permission."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what the SDK is to know of the token, None for one that is not good here."""
        return await sync_to_async(self.look_up, thread_sensitive=False)(token)

    def look_up(self, token: str) -> AccessToken | None:
        """Return the same, in a worker thread."""
        checksum = hashlib.sha256(token.encode()).hexdigest()
        tokens = get_access_token_model().objects.select_related("user", "application")
        found = tokens.filter(token_checksum=checksum).first()
        if found is None or found.user is None or not found.is_valid(["mcp:read"]) or ENDPOINT not in found.resource:
            return None
        if not found.user.is_active or not found.user.has_perm("bench.view_article"):
            return None
        client = str(found.application.client_id) if found.application else ""
        return AccessToken(token=token, client_id=client, scopes=found.scope.split(), resource=ENDPOINT)


def server(**options: Any) -> MCPServer:
    """Return a server with the ten tools."""
    bus = InMemorySubscriptionBus()
    made = MCPServer("bench", log_level="WARNING", subscriptions=bus, **options)
    made._lowlevel_server.add_request_handler(
        "subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(bus, max_subscriptions=MAX_STREAMS)
    )
    for function, annotations in TOOLS.items():
        made.add_tool(function, annotations=annotations)
    return made


def application() -> Starlette:
    """Return the ASGI application: Streamable HTTP without sessions, answers as JSON."""
    return server().streamable_http_app(stateless_http=True, json_response=True)


def guarded_application() -> Starlette:
    """Return the same, for callers with a token."""
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(BASE_URL), resource_server_url=AnyHttpUrl(ENDPOINT), validate_token_resource=True
    )
    checked = server(auth=auth, token_verifier=Verifier())
    return checked.streamable_http_app(stateless_http=True, json_response=True)


def streaming_application() -> Starlette:
    """Return the ASGI application with streams, and with sessions in the handshake era."""
    return server().streamable_http_app(max_sessions=MAX_STREAMS)
