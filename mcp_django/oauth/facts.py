"""Facts kept with a token: written when the user consents, and passed on from token to token of one grant."""

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings as django_settings
from django.db import router
from django.db.models import Exists, OuterRef
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_refresh_token_model

from ..context.narrowing import NARROWED_TO, kept_narrowing
from ..models import TokenFacts
from ..orm.queries import chunks
from ..signin import CHOSEN, Question

# Under which is kept when access ends, in seconds since the epoch, where the user chose that.
UNTIL: Final = "granted_until"
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


def chosen(models: Collection[str], days: int | None) -> dict[str, Any]:
    """Return the facts that a user chooses: which apps and models it is for, none for all, and how long."""
    until = {} if days is None else {UNTIL: int(time.time()) + days * 24 * 3600}
    return until | ({NARROWED_TO: kept_narrowing(models)} if models else {})


def answered(questions: Iterable[Question], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts of what a user chose at the consent page, None where that was not to be chosen."""
    facts: dict[str, Any] = {}
    words: dict[str, str] = {}
    for question in questions:
        value = given.get(f"fact_{question.name}", "")
        if value not in question.options:
            return None
        facts[question.name], words[question.name] = value, str(question.options[value])
    return facts | ({CHOSEN: words} if words else {})


def until_of(facts: Mapping[str, Any]) -> datetime | None:
    """Return when access ends by the choice of the user, None where there was none; what is no time is over."""
    if UNTIL not in facts:
        return None
    zone = UTC if django_settings.USE_TZ else None
    kept = facts[UNTIL]
    return datetime.fromtimestamp(kept if isinstance(kept, int) else 0, tz=zone)


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
