"""A secret within a text that is shown as ``<hidden>`` comes back by no question, letter by letter or otherwise.

The same questions are asked in two worlds, which differ in the secret alone: the answers are the same to the byte.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.access import access_of
from mcp_django.orm.completed_values import ModelValues
from mcp_django.orm.hidden_parts import HidesParts
from mcp_django.resources.completions import complete_field
from mcp_django.schema.secrets import without_secrets
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.chatgpt import Search
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from tests.behaviour.test_oracles import answer
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Profile
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
SECRETS = ("hunter2a", "sesame9z")
TEXTS = (
    "redis://:{}@cache.example/0",
    "postgres://ada:{}@db.example/shop",
    '{{"name": "x", "password": "{}"}}',
    "{{'api_key': '{}', 'n': 1}}",
    'It says {{"auth": {{"token": "{}"}}}} there',
    '{{"contraseña_token": "{}", "n": 1}}',
)
SEARCHED_OF_PROFILES = ["=biography", "author__name"]
SEARCHED = ["name", "^name", "profile__biography"]


def site_of() -> MCPSite:
    site = MCPSite("of hidden parts", history=False)
    shown = ["name", "email", "profile", "books"]
    site.register(Author, ModelExposure, fields=shown, search_fields=SEARCHED, ordering=["pk"])
    site.register(
        Profile, ModelExposure, fields=["biography", "author"], search_fields=SEARCHED_OF_PROFILES, ordering=["pk"]
    )
    site.register(
        Book, ModelExposure, fields=["title", "author", "data"], search_fields=["title", "author__name", "data"]
    )
    return site


class World:
    def __init__(self) -> None:
        self.user = make_superuser()
        self.rows = [make_author(name) for name in ("ann", "me", "zoe", "x", "y", "z", "u")]
        for author in self.rows:
            Profile.objects.create(author=author, biography="seen")
            make_book("seen", author=author)

        # A text that lies between the two secrets.
        make_author(TEXTS[0].format("m").replace("@", "!"))

    def become(self, number: int) -> None:
        for author, text in zip(self.rows[: len(TEXTS)], TEXTS, strict=True):
            author.name = text.format(SECRETS[number])
            author.save()
            Profile.objects.filter(author=author).update(biography=author.name)
            secret = {"password": SECRETS[number], "seen": "yes"}
            Book.objects.filter(author=author).update(title=author.name, data=secret)


def parts() -> Iterator[str]:
    """Yield parts of the secrets, and whole texts with them."""
    for secret in SECRETS:
        yield from (secret[:length] for length in (1, 2, 7))
        yield secret
        yield f":{secret[:3]}"
        yield secret[-3:]
        yield from (text.format(secret[:2])[:12] for text in TEXTS[:2])
        yield from (text.format(secret) for text in TEXTS)


LOOKUPS = ("exact", "iexact", "contains", "icontains", "startswith", "istartswith", "endswith", "gt", "lte", "in", "ne")
PATHS = {
    "testapp.author": ("name", "profile.biography", "books.title"),
    "testapp.profile": ("biography", "author.name"),
    "testapp.book": ("title", "author.name", "author.profile.biography"),
}


def reads() -> Iterator[tuple[Tool, dict[str, Any]]]:
    query, aggregate = QueryRecords(), AggregateRecords()
    rng = random.Random(7)
    given = list(parts())
    for label, names in PATHS.items():
        about = {"model": label}
        yield query, about
        # No row has this key: the version of a row that is there says that it was changed.
        yield GetRecord(), {**about, "pk": 999_999}
        for text in given:
            yield query, {**about, "search": text, "count": True}
            yield aggregate, {**about, "aggregates": ["count"], "search": text}
            yield GetRecord(), {**about, "pk": text}
            yield Search(), {"query": text}
        for name in names:
            for lookup in LOOKUPS:
                for text in rng.sample(given, 5):
                    condition = {f"{name}__{lookup}".replace(".", "__"): [text] if lookup == "in" else text}
                    yield query, {**about, "filters": condition, "fields": ["pk"], "count": True}
                    yield query, {**about, "filters": {"not": condition}, "count": True}
                    yield query, {**about, "filters": {"or": [condition, {"pk": -1}]}, "count": True}
                    counted = {"function": "count", "where": condition, "as": "some"}
                    yield aggregate, {**about, "aggregates": [counted, "count"]}
                    having = {f"max:{name}": {lookup: text}}
                    yield aggregate, {**about, "aggregates": [f"max:{name}"], "group_by": ["pk"], "having": having}
            yield query, {**about, "fields": ["pk"], "ordering": [name]}
            yield query, {**about, "fields": ["pk"], "ordering": [f"-{name}"], "limit": 2}
            for function in ("min", "max"):
                yield aggregate, {**about, "aggregates": [f"{function}:{name}"]}
    for relation in ("books", "profile"):
        for text in given:
            inner = {"title__startswith": text} if relation == "books" else {"biography__contains": text}
            yield query, {"model": "testapp.author", "filters": {relation: inner}, "count": True}


def answers(user: Any, site: MCPSite) -> dict[str, str]:
    found = {f"{tool.name} {asked}": answer(request_of(user, site), tool, asked) for tool, asked in reads()}
    for label, names in PATHS.items():
        for text in parts():
            request = request_of(user, site)
            values = ModelValues(access_of(request).get_model(label))
            found[f"keys {label} {text}"] = str(values.keys(text))
            found[f"searched {label} {text}"] = str(values.searched(text))
            found[f"complete {label} {text}"] = str(complete_field(request, label, names[0], text))
    return found


def test_no_answer_depends_on_a_secret_that_is_shown_as_hidden() -> None:
    world, site = World(), site_of()
    world.become(0)
    first = answers(world.user, site)
    assert not any(SECRETS[0] in text for asked, text in first.items() if SECRETS[0] not in asked)
    world.become(1)
    second = answers(world.user, site)
    told = {asked: (first[asked], second[asked]) for asked in first if first[asked] != second[asked]}
    assert not told, json.dumps(told, indent=1)[:6_000]


def test_texts_without_a_secret_are_found_by_their_parts() -> None:
    texts = ["{ braces }", "see https://x.example/@ada: ada@x.example", 'a "quoted": "word"', '{"name": "x"}', "a:b@c"]
    user, site = make_superuser(), site_of()
    for text in texts:
        make_author(text)
        for filters in ({"name__startswith": text[:3]}, {"name__icontains": text[2:]}, {"name": text}):
            found = QueryRecords().call(request_of(user, site), {"model": "testapp.author", "filters": filters})
            assert text in str(found.structured["rows"]).replace("\\", "") or repr(text)[1:-1] in str(found.structured)
        found = QueryRecords().call(request_of(user, site), {"model": "testapp.author", "search": text[:4]})
        assert found.structured["rows"]


def test_the_database_knows_each_text_of_which_a_part_is_hidden() -> None:
    """Drawn texts: what the database takes for harmless is shown as it is."""
    rng = random.Random(20)
    names = (
        "password",
        "api_key",
        "apiKey",
        "note",
        "session_data",
        "seedPhrase",
        "auth",
        "dsn",
        "color",
        "Cookie",
        "señal_key",
        "鍵_token",
    )
    pieces = [f'"{name}": "v"' for name in names] + [f"'{name}' : {{1}}" for name in names]
    pieces += ["redis://:pw@h", "https://u@h", "x://a:b@c/d", "http://h:80/@x", "{", "}", "@", "://", "\n", "ü", "text"]
    made = [make_author("".join(rng.choices(pieces, k=rng.randint(1, 5)))[:100]) for _ in range(400)]
    hidden = set(Author.objects.filter(HidesParts("name")).values_list("pk", flat=True))
    missed = [author.name for author in made if without_secrets(author.name) != author.name and author.pk not in hidden]
    assert not missed
    assert 50 < len(hidden) < 350
