"""Facts kept with a token: written when the user consents, and passed on from token to token of one grant."""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import router
from django.db.models import Exists, OuterRef
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from ..models import TokenFacts
from ..orm.queries import chunks

# A code waits for its token, and a token that was just made for its row.
YOUNG: Final = timedelta(days=1)


def checksum_of(text: str) -> str:
    """Return under what a token or a code is known: its SHA-256 (hexadecimal)."""
    return hashlib.sha256(text.encode()).hexdigest()


def store_facts(token: str, user: Any, facts: Mapping[str, Any], family: UUID | None = None) -> None:
    """Keep ``facts`` for the token or code with this checksum; ``family`` is that of its refresh token."""
    TokenFacts(token=token, family=family, user=user, facts=dict(facts), created=timezone.now()).save(force_insert=True)


def facts_of(token: str) -> dict[str, Any]:
    """Return what is kept for the token or code with this checksum."""
    found = TokenFacts._default_manager.filter(pk=token).values_list("facts", flat=True).first()
    return dict(found or {})


def facts_of_many(tokens: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what is kept for each of the tokens with these checksums."""
    kept = TokenFacts._default_manager
    return {
        pk: facts for part in chunks(list(tokens)) for pk, facts in kept.filter(pk__in=part).values_list("pk", "facts")
    }


def facts_of_family(family: UUID | None) -> dict[str, Any]:
    """Return what is kept for the newest token of a family."""
    if family is None:
        return {}
    kept = TokenFacts._default_manager.filter(family=family).order_by("-created")
    return dict(kept.values_list("facts", flat=True).first() or {})


def beside_tokens() -> bool:
    """Return whether tokens and what is kept with them are in one database, so that one query can have both."""
    return router.db_for_read(TokenFacts) == router.db_for_read(get_access_token_model())


def forget_former(family: UUID) -> None:
    """Delete what was kept for tokens of a family that are no more, once their successor has it."""
    if beside_tokens():
        tokens = get_access_token_model().objects.values("token_checksum")
        TokenFacts._default_manager.filter(family=family).exclude(pk__in=tokens).delete()


def clear_token_facts() -> int:
    """Delete what was kept for tokens that are no more and have no successor to come; return how much."""
    old = TokenFacts._default_manager.filter(created__lt=timezone.now() - YOUNG)
    access, refresh = get_access_token_model(), get_refresh_token_model()
    if not beside_tokens():
        return 0
    alive = access._default_manager.filter(token_checksum=OuterRef("pk"))
    to_come = refresh._default_manager.filter(token_family=OuterRef("family"), revoked__isnull=True)
    return old.filter(~Exists(alive), ~Exists(to_come)).delete()[0]
