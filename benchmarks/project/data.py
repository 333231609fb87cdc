"""The rows, the account and its token; the same on every run."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model

from .models import Article, Author, Event
from .settings import ENDPOINT

TOKEN: Final = "benchmark-token-0123456789abcdefghijklmnopqrstuvwxyz"
SCOPE: Final = "mcp:read mcp:write"
# Of the account that the token belongs to, the first one.
READER_PK: Final = 1
AUTHORS: Final = 1_000
START: Final = datetime(2020, 1, 1, tzinfo=UTC)
WORDS: Final = (
    "river",
    "harbour",
    "winter",
    "engine",
    "copper",
    "signal",
    "letter",
    "market",
    "window",
    "bridge",
    "forest",
)
LANGUAGES: Final = ("en", "de", "fr", "pt-br")
KINDS: Final = ("login", "order", "payment", "refund", "shipment")


def create(rows: int, events: int, holders: int = 0) -> list[str]:
    """Make the tables and fill them: ``rows`` articles and ``events`` events.

    Return the tokens of ``holders`` more accounts.
    """
    call_command("migrate", run_syncdb=True, verbosity=0)
    with transaction.atomic():
        fill(Author, ((number + 1, f"Author {number + 1}") for number in range(AUTHORS)))
        fill(Article, articles(rows))
        fill(Event, map(event, range(events)))
        group = Group.objects.create(name="editors")
        group.permissions.set(Permission.objects.filter(content_type__app_label="bench"))
        application = get_application_model().objects.create(
            name="Benchmark", client_id="benchmark", client_type="public", authorization_grant_type="authorization-code"
        )
        create_account("reader", TOKEN, group, application)
        tokens = [f"{TOKEN}-{number}" for number in range(holders)]
        for number, token in enumerate(tokens):
            create_account(f"holder{number}", token, group, application)
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            for model in (Author, Article, Event):
                cursor.execute(f"ANALYZE TABLE {connection.ops.quote_name(model._meta.db_table)}")
        else:
            cursor.execute("ANALYZE")
    return tokens


def fill(model: type[Model], rows: Any) -> None:
    """Insert rows given in the order of the model's columns, primary key first.

    ``rows`` is an iterator of tuples, so that a million of them need no memory.
    """
    columns = [str(field.column) for field in model._meta.concrete_fields]
    quoted = ", ".join(connection.ops.quote_name(column) for column in columns)
    table = connection.ops.quote_name(model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {table} ({quoted}) VALUES ({', '.join(['%s'] * len(columns))})", rows)


def articles(number: int) -> Iterator[tuple[Any, ...]]:
    """Yield articles; half of them are published."""
    chance = random.Random(1)
    statuses = (Article.Status.PUBLISHED, Article.Status.PUBLISHED, Article.Status.DRAFT, Article.Status.WITHDRAWN)
    for pk in range(1, number + 1):
        title = " ".join(chance.choices(WORDS, k=4)).capitalize()
        published = moment(chance.randrange(200_000_000))
        yield (
            pk,
            title,
            f"{title.lower().replace(' ', '-')}-{pk}",
            " ".join(chance.choices(WORDS, k=12)),
            chance.randrange(1, AUTHORS + 1),
            str(chance.choice(statuses)),
            chance.choice(LANGUAGES),
            f"{chance.randrange(100, 10_000) / 100:.2f}",
            chance.randrange(200, 5_000),
            None if chance.random() < 0.1 else round(chance.uniform(1, 5), 1),
            chance.random() < 0.05,
            published,
            published,
        )


def event(number: int) -> tuple[Any, ...]:
    """Return the event of a number, counted from 0."""
    return number + 1, moment(number * 60), KINDS[number % len(KINDS)], f"{number % 100_000 / 100:.2f}"


def moment(seconds: int) -> str:
    """Return a time after the start as Django stores it in SQLite."""
    return str((START + timedelta(seconds=seconds)).replace(tzinfo=None))


def create_account(name: str, token: str, group: Group, application: Any) -> None:
    """Make a member of the staff who has each permission through a group, and a token for the endpoint."""
    user = get_user_model().objects.create(username=name, email=f"{name}@bench.example", is_staff=True)
    user.groups.add(group)
    get_access_token_model().objects.create(
        user=user,
        application=application,
        token=token,
        scope=SCOPE,
        resource=[ENDPOINT],
        expires=timezone.now() + timedelta(days=1),
    )
