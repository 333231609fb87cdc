"""Which names say that what they name is a credential. It is shown to nobody, unless an exposure names it itself."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from django.db.models import CharField, Model, TextField

__all__ = ["HIDDEN", "holds_hidden", "is_sensitive", "members"]

MAX_NAME: Final = 200
# What stands in JSON where a secret is.
HIDDEN: Final = "<hidden>"
_SENSITIVE: Final = re.compile(
    r"(?:^|_)(?:pass(?:word|wd|phrase|code)|pwd|secrets?|tokens?|[ht]?otp|mfa|pin|cvv|cvc|iban|ssn|salt|hash"
    r"|credentials?|session_?data|(?:api|private|secret|access|session|encryption|signing|auth|ssh|recovery|backup"
    r"|cert(?:ificate)?|client|webhook|hmac|master)_?(?:key|code)s?)(?:_?hash)?(?:$|_)"
)
# The word before a capital ends at a small letter, an abbreviation at its last capital: ``HOTPDevice``, ``apiKey``.
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Models whose rows are credentials, and the names that say nothing by themselves but hold one there.
_HOLDER: Final = re.compile(r"(?:^|_)(?:authenticator|confirmation|verification|invitation|passkey|webauthn)s?(?:$|_)")
_BARE: Final = frozenset({"code", "data", "digest", "key", "seed", "value"})


@lru_cache(maxsize=8192)
def is_sensitive(name: str, model: type[Model] | None = None) -> bool:
    """Return whether a field's name says that it holds a credential (``password``, ``api_key``, ``card_token``).

    With its model, ``key`` and its like count too where the model's name says what they are (``Authenticator``,
    ``HOTPDevice``), and ``key`` beside another credential of the model.
    """
    words = _CAMEL.sub("_", name).lower()
    if _SENSITIVE.search(words) is not None:
        return True
    return model is not None and words in _BARE and _holds_credentials(model, words)


def _holds_credentials(model: type[Model], name: str) -> bool:
    words = _CAMEL.sub("_", model._meta.object_name or "").lower()
    if _HOLDER.search(words) or _SENSITIVE.search(words):
        return True
    texts = (field.name for field in model._meta.concrete_fields if isinstance(field, (CharField, TextField)))
    return name == "key" and any(map(is_sensitive, texts))


def members(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the members of a JSON object, with ``HIDDEN`` for what its name says is a secret; no number is one."""
    for key, item in value.items():
        name = str(key)
        plain = item is None or item == "" or isinstance(item, (bool, int, float))
        yield name, item if plain or not is_sensitive(name[:MAX_NAME]) else HIDDEN


def holds_hidden(value: Any) -> bool:
    """Return whether there is a ``HIDDEN`` in a JSON value, which must not be written in place of the secret."""
    if isinstance(value, dict):
        return any(map(holds_hidden, value.values()))
    return any(map(holds_hidden, value)) if isinstance(value, list) else value == HIDDEN
