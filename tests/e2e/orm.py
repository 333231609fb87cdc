"""What the ORM says of a server's data, asked beside it: on whatever database the server runs."""

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from tests.e2e.forks import Dialogue
from tests.e2e.servers import Server

Orm = Callable[[str], Any]
# Answers expressions, one a line.
PROGRAM = """
import json, sys
from datetime import timedelta
import django
django.setup()
from django.db.models import F, Max, Q, Sum
from django.db.models.functions import TruncMonth
from django.utils import timezone
from example_project.places.models import City
from example_project.shop.models import Category, Document, Order, OrderLine, Product, Review, Shipment
for line in sys.stdin:
    print(json.dumps(eval(json.loads(line)), default=str), flush=True)
"""


@contextmanager
def orm_of(server: Server) -> Iterator[Orm]:
    """Give, until the block ends, a function that evaluates an expression in a process of the server's project.

    The value is as JSON has it.
    """
    with closing(Dialogue([sys.executable, "-c", PROGRAM], server.environment)) as process:
        yield process.ask


@contextmanager
def new_postgres_database(postgres: str) -> Iterator[str]:
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
