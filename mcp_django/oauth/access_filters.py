"""What the admin's list of tokens can be narrowed to: a user, an application, how access was given, what has ended."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.db.models import BigIntegerField, Count, Q, QuerySet
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from oauth2_provider.models import get_access_token_model

from ..context.text import plain
from ..models import LinkedIdentity, TokenFacts
from ..signin import LINKED_IDENTITY, SERVICE_ACCOUNT
from .pages import client_name, name_doubts
from .tokens import CLIENT, beside_tokens, live

# Users and applications that a filter names: those with the most access. Links in the list lead to all others.
SHOWN: Final = 20
PERSON, SERVICE, COMMAND, ISSUER = "person", "service", "command", "issuer:"


class StateFilter(SimpleListFilter):
    """What is live, unless what has ended is asked for."""

    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("ended", _("ended"))]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Call what is shown without a choice by its name."""
        first, *rest = super().choices(changelist)
        yield {**first, "display": _("live")}
        yield from rest

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(~live() if self.value() == "ended" else live())


class _MostFilter(SimpleListFilter):
    """One of those that the tokens belong to: a choice of the ones with the most, and whichever the address names."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the keys and names, with how much live access each has."""
        name = str(self.parameter_name)
        tokens = get_access_token_model()._default_manager.filter(live(), **{f"{name}__isnull": False})
        counted = dict(tokens.values_list(name).annotate(count=Count("pk")).order_by("-count", name)[:SHOWN])
        rows = self._rows().in_bulk(list(counted))
        found = [(str(pk), f"{self.called(rows[pk])} ({count})") for pk, count in counted.items() if pk in rows]
        value = self.value()
        if value is not None and value not in dict(found):
            row = self._chosen()
            found.append((value, plain(value) if row is None else self.called(row)))
        return found

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        row = self._chosen()
        return queryset.none() if row is None else queryset.filter(**{str(self.parameter_name): row})

    def called(self, row: Any) -> str:
        raise NotImplementedError

    def _rows(self) -> QuerySet[Any]:
        field: Any = get_access_token_model()._meta.get_field(self.parameter_name)
        rows: QuerySet[Any] = field.related_model._default_manager.all()
        return rows

    def _chosen(self) -> Any:
        rows = self._rows()
        try:
            return rows.filter(pk=rows.model._meta.pk.to_python(plain(self.value()))).first()
        except ValidationError:
            return None


class UserFilter(_MostFilter):
    """The user for whom there is access."""

    title = gettext_lazy("user")
    parameter_name = "user"

    def called(self, row: Any) -> str:
        return plain(row.get_username())


class ClientFilter(_MostFilter):
    """The application that has access."""

    title = gettext_lazy("application")
    parameter_name = "application"

    def called(self, row: Any) -> str:
        """Return the name of an application, marked where something is odd about it."""
        return f"{'⚠ ' if name_doubts(row) else ''}{client_name(row)}"


class KindFilter(SimpleListFilter):
    """How access was given: at the consent page, to a service account, by a command, by an identity provider."""

    title = gettext_lazy("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the kinds, and each identity provider by which a user is known."""
        issuers = LinkedIdentity._default_manager.values_list("issuer", flat=True).distinct().order_by("issuer")
        kinds = [(PERSON, _("consent page")), (SERVICE, _("service account")), (COMMAND, CLIENT)]
        return kinds + [(ISSUER + issuer, plain(issuer, 255)) for issuer in issuers]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value() or ""
        if value.startswith(ISSUER):
            links = LinkedIdentity._default_manager.filter(issuer=value.removeprefix(ISSUER)).values("pk")
            identity = Cast(KT(f"facts__{LINKED_IDENTITY}"), BigIntegerField())
            return queryset.filter(_beside(Q(identity__in=links), identity=identity))
        if value == SERVICE:
            return queryset.filter(_beside(Q(facts__has_key=SERVICE_ACCOUNT)))
        if value == COMMAND:
            return queryset.filter(application__client_id=CLIENT)
        if value == PERSON:
            machines = Q(facts__has_key=SERVICE_ACCOUNT) | Q(facts__has_key=LINKED_IDENTITY)
            return queryset.exclude(_beside(machines)).exclude(application__client_id=CLIENT)
        return queryset


def _beside(condition: Q, **computed: Any) -> Q:
    """Return the condition on tokens with which such facts are kept."""
    kept = TokenFacts._default_manager.annotate(**computed).filter(condition).values("pk")
    return Q(token_checksum__in=kept if beside_tokens() else [found["pk"] for found in kept])


def add_kinds(tokens: Collection[Any]) -> None:
    """Give described tokens as ``kind`` how access was given, in words, by one query."""
    linked = {token.facts[LINKED_IDENTITY] for token in tokens if LINKED_IDENTITY in token.facts}
    issuers = dict(LinkedIdentity._default_manager.filter(pk__in=linked).values_list("pk", "issuer"))
    for token in tokens:
        name = plain(token.facts.get("name"))
        if SERVICE_ACCOUNT in token.facts:
            token.kind = f"{_('service account')}: {name}"
        elif LINKED_IDENTITY in token.facts:
            token.kind = plain(issuers.get(token.facts[LINKED_IDENTITY], ""), 255)
        elif token.application is not None and token.application.client_id == CLIENT:
            token.kind = f"{CLIENT}: {name}" if name else CLIENT
        else:
            token.kind = _("consent page")
