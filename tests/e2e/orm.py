"""What the ORM says of a server's data, asked beside it: on whatever database the server runs."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.e2e.servers import Server, manage

PRELUDE = """
import json
from datetime import timedelta
from django.db.models import Count, F, Q, Sum
from django.db.models.functions import TruncMonth
from django.utils import timezone
from example_project.places.models import City
from example_project.shop.models import Category, Document, Order, OrderLine, PaymentAudit, Product, Review, Shipment
"""


def orm(server: Server, expression: str) -> Any:
    """Return the value of an expression in a shell of the server's project, as JSON has it."""
    code = f"{PRELUDE}\nprint(json.dumps({expression}, default=str))"
    return json.loads(manage(server, "shell", "-v", "0", "-c", code).splitlines()[-1])


@contextmanager
def postgres_database(postgres: str) -> Iterator[str]:
    """Make an empty database on a PostgreSQL server until the block ends, and give its URL."""
    import psycopg
    from psycopg import sql

    name = f"mcp_django_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(postgres)._replace(path=f"/{name}"))
        finally:
            # The server may still hold connections.
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
