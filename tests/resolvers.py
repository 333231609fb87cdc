"""URL resolvers that are kept from one test to the next.

Whoever changes `ROOT_URLCONF` makes Django forget all resolvers, and so does pytest-django before and after each test
that is marked with `urls`. To read the patterns of every admin again takes longer than most of these tests. The
resolver of a module is used again as long as the module lists the same patterns.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from django.urls import URLPattern, URLResolver, base, resolvers
from django.urls.resolvers import RegexPattern


@contextmanager
def kept() -> Iterator[None]:
    """Keep the resolvers of URLconfs that are modules until the block ends, also where Django forgets them."""
    known: dict[str, tuple[URLResolver, list[URLPattern | URLResolver]]] = {}

    @cache
    def resolver_of(urlconf: Any = None) -> URLResolver:
        made = URLResolver(RegexPattern(r"^/"), urlconf)
        if not isinstance(urlconf, str):
            return made
        resolver, patterns = known.get(urlconf, (None, None))
        if resolver is None or resolver.urlconf_module is not made.urlconf_module or patterns != made.url_patterns:
            resolver, _ = known[urlconf] = made, [*made.url_patterns]
        return resolver

    # Both modules have the name; one of them makes resolvers, the other one forgets them.
    with (
        patch.object(resolvers, "_get_cached_resolver", resolver_of),
        patch.object(base, "_get_cached_resolver", resolver_of),
    ):
        yield
