"""Values that are likely secrets by their characters alone: generated tokens, and numbers of payment cards."""

import re
from typing import Any, Final

from ..schema.secrets import HIDDEN, without_secrets

# 16 characters with small letters, capitals and digits, or 32 hexadecimal digits in a row, more than a UUID has.
_DRAWN: Final = re.compile(
    r"(?=[A-Za-z]*[0-9])(?=[0-9a-z]*[A-Z])(?=[0-9A-Z]*[a-z])[A-Za-z0-9]{16}"
    r"|(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{32}"
    # Keys that services mark by how they begin: AWS, Stripe, GitHub, Slack, and any JSON web token.
    r"|A(?:KIA|SIA|ROA|IDA)[A-Z0-9]{12}|[spr]k_(?:live|test)_[A-Za-z0-9]{8}|gh[pousr]_[A-Za-z0-9]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{8}|eyJ[A-Za-z0-9_-]{8}"
)
_WORD: Final = re.compile(r"[\w.~+/=-]{16,}")
_CARD: Final = re.compile(r"(?<![\w.-])[2-6](?:[ -]?[0-9]){12,18}(?![\w-])")


def without_likely_secrets(value: Any) -> Any:
    """Hide likely secrets in a value: put ``HIDDEN`` for a secret token or a payment card's number."""
    if isinstance(value, int):
        if _CARD.fullmatch(str(value)) and _adds_up(str(value)):
            return HIDDEN
        return value
    if not isinstance(value, str):
        return value
    text = _WORD.sub(_hidden_if_marked, without_secrets(value, is_shown_once=True))
    return _CARD.sub(_hidden_if_card, text)


def _hidden_if_marked(found: re.Match[str]) -> str:
    if _DRAWN.search(found[0]):
        return HIDDEN
    return found[0]


def _hidden_if_card(found: re.Match[str]) -> str:
    if _adds_up(found[0]):
        return HIDDEN
    return found[0]


def _adds_up(number: str) -> bool:
    """Return whether digits are likely a secret card number, by their check digit (ISO/IEC 7812-1, Luhn)."""
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    return sum(digits[::2]) % 10 == -sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2]) % 10
