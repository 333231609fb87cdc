"""The one gate: which exposure, field, lookup, row may a request touch."""

import re
from typing import Final

__all__ = ["is_sensitive"]

_SENSITIVE: Final = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secret|secrets|token|tokens|otp|totp|pin|cvv|cvc|iban|ssn|hash|salt|credential|credentials|"
    r"(api|private|secret|access|session|encryption|signing|auth|ssh)_?key)s?($|_)"
)


def is_sensitive(name: str) -> bool:
    return _SENSITIVE.search(name.lower()) is not None
