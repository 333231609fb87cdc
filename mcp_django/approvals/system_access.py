"""Access of the system: every row and column of every model, whatever a site exposes and whoever calls.

Conditions of approval rules are read and evaluated with it: a rule on what callers do not see applies all the same.
Nothing that is read this way is shown to a caller.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.db.models import Model, QuerySet
from django.utils import timezone, translation

from ..context.databases import PRIMARY
from ..exposures.model_exposure import ExposureOptions, ModelExposure
from ..orm.access import ModelAccess, access_of
from ..orm.filter_parser import FilterReader


class SystemOptions(ExposureOptions):
    """The options of a ``SystemExposure``: nothing is left out."""

    hides_parts = False

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names of all concrete fields and many-to-many relations."""
        opts = self.exposure.opts
        return self.with_primary_key(field.name for field in (*opts.concrete_fields, *opts.many_to_many))

    @cached_property
    def has_every_row(self) -> bool:
        """True: no manager and no hook narrows the rows."""
        return True


class SystemExposure(ModelExposure):
    """The exposure of a model to the system itself."""

    _options_class = SystemOptions
    description = "Every row and column."

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return None: only what the database holds is compared."""
        return None

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        """Return all rows of the table: a default manager may leave some out."""
        return QuerySet(self.model, using=request.alias_of(self.model))

    def has_permission(self, request: Any, action: str, obj: Model | None = None) -> bool:
        """Return True."""
        return True


class SystemSite:
    """Stands in for the ``MCPSite``: every installed model is exposed, proxies and links of relations too."""

    admin_site = None

    @cached_property
    def exposures(self) -> Mapping[type[Model], ModelExposure]:
        """The exposures by model."""
        return {model: SystemExposure(model, self) for model in apps.get_models(include_auto_created=True)}

    @cached_property
    def exposures_by_label(self) -> Mapping[str, ModelExposure]:
        """The exposures by label, in lower case."""
        return {exposure.label: exposure for exposure in self.exposures.values()}

    def find_exposure(self, label: str) -> ModelExposure | None:
        """Return the exposure of the model with this label."""
        return self.exposures_by_label.get(label)

    def search_paths(self, request: Any, queryset: QuerySet[Any], fields: Any) -> tuple[QuerySet[Any], list[str]]:
        """Return no path: rows are not searched."""
        return queryset, []


class SystemUser:
    """Stands in for the caller's user: one who may do everything, and is nobody."""

    pk = None
    is_active = True
    is_authenticated = True
    is_staff = True

    def has_perm(self, name: str, obj: Any = None) -> bool:
        """Return True."""
        return True


class SystemContext:
    """Stands in for ``request.mcp``: nothing is switched off or narrowed."""

    off = None
    narrowing = None

    def __init__(self, site: SystemSite) -> None:
        self.site = site


class SystemRequest:
    """Stands in for a caller's request. The rows of ``model``, and what is in the same database, are read on
    ``using``."""

    def __init__(self, model: type[Model], using: str) -> None:
        self.user = SystemUser()
        self.mcp = SystemContext(_site())
        self._home = PRIMARY.home_of(model)
        self._using = using

    def alias_of(self, model: type[Model]) -> str:
        """Return the alias of the database on which the rows of a model are read."""
        home = PRIMARY.home_of(model)
        return self._using if home == self._home else home


@lru_cache(maxsize=1)
def _site() -> SystemSite:
    """Return the site; it is kept, because columns are kept by their exposure."""
    return SystemSite()


def system_access(model: type[Model], using: str) -> ModelAccess:
    """Return the system's access to a model whose rows are read on ``using``. Raises ``LookupError`` if the model is
    not installed."""
    request: Any = SystemRequest(model, using)
    exposure = _site().exposures.get(model)
    if exposure is None:
        raise LookupError(f"{model._meta.label} is not installed.")
    return access_of(request)[exposure]


@contextmanager
def system_locale() -> Iterator[None]:
    """Read dates and names of choices in the time zone and language of the settings, whatever the caller's are."""
    language = django_settings.LANGUAGE_CODE
    with translation.override(language), timezone.override(timezone.get_default_timezone()):
        yield


def system_reader(model: type[Model], using: str) -> FilterReader:
    """Return the parser of filters on a model."""
    return FilterReader(system_access(model, using))
