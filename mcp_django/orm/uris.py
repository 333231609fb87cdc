"""URIs of models, rows, pages and files: ``django://{app_label}/{model_name}[/{pk}[/{field}]]``.

Each thing has one URI: labels are in lower case, and a primary key is spelt as ``pk_text`` writes it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from django.contrib.admin import ModelAdmin
from django.contrib.admin import site as default_site
from django.contrib.admin.sites import all_sites

from ..conf import settings
from ..context.tickets import Ticket
from ..exceptions import NotFound
from ..protocol.uri_templates import UriTemplate
from ..runtime.failing_hooks import call_hook
from .column_values import pk_text, plain_key

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from django.db.models import Model

    from ..context.request import MCPRequest
    from .access import ModelAccess

ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
# Hooks of an admin that decide whether a page opens, and hooks of an exposure that decide whether a row is visible.
_VERDICTS: Final = ("has_view_or_change_permission", "has_view_permission", "has_change_permission")
_HOOKS: Final = ("has_view_permission", "has_permission", "get_queryset")


@dataclass(frozen=True, slots=True)
class ParsedURI:
    """What a ``django://`` URI names: a page of a model's rows (``query``), its schema, a row (``pk``), or a file."""

    SCHEME: ClassVar = "django://"
    # Last part of the path of a schema's URI.
    SCHEMA: ClassVar = "schema"
    # Maximum number of characters: longer URIs cannot come from this server. A cursor is the longest part.
    MAX_LENGTH: ClassVar = 8192
    # Purpose of the tickets for downloads, and their part of the URL's path.
    DOWNLOADS: ClassVar = "files"

    label: str
    pk: str | None = None
    field_name: str | None = None
    is_schema: bool = False
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, uri: Any) -> "ParsedURI":
        """Parse a URI; what it names need not exist. Raises ``NotFound`` for any other text."""
        if not isinstance(uri, str) or len(uri) > cls.MAX_LENGTH or not uri.startswith(cls.SCHEME):
            raise NotFound
        path, mark, _ = uri.partition("?")
        parts = path[len(cls.SCHEME) :].split("/", 4)
        if len(parts) == 2:
            found = _PAGE.match(uri)
            if found is None:
                raise NotFound
            return cls(f"{found.pop('app_label')}.{found.pop('model_name')}", query=found)
        if len(parts) not in (3, 4) or mark or "#" in uri:
            raise NotFound

        app_label, model_name, pk, *rest = parts
        label = f"{_name(app_label)}.{_name(model_name)}"
        if pk == cls.SCHEMA and not rest:
            return cls(label, is_schema=True)
        try:
            parsed = cls(label, pk=UriTemplate.decode(pk), field_name=UriTemplate.decode(rest[0]) if rest else None)
        except ValueError:
            raise NotFound from None

        # Any other spelling would be a second URI of the same thing. Escapes may have either case (RFC 3986, 6.2.2.1).
        parts = [ESCAPE.sub(lambda found: found[0].upper(), part) for part in (pk, *rest)]
        if [_key_part(parsed.pk or ""), *map(UriTemplate.encode, filter(None, [parsed.field_name]))] != parts:
            raise NotFound
        return parsed

    def download_url(self, request: "MCPRequest") -> str | None:
        """Return a URL that downloads this file and works for this caller for some minutes, None without such URLs.

        The URL leads to this server, which checks the caller's access again, and never to the storage itself.
        """
        if not Ticket.suits(request) or self.pk is None or self.field_name is None:
            return None
        return Ticket.url(request, self.DOWNLOADS, self.label, self.pk, self.field_name)


class Address:
    """The addresses of a model and its rows: ``django://`` URIs, and URLs in the admin that open for the caller."""

    RECORD_TEMPLATE: ClassVar = "django://{app_label}/{model_name}/{pk}"
    PAGE_TEMPLATE: ClassVar = "django://{app_label}/{model_name}{?cursor,search,ordering,fields}"
    SCHEMA_TEMPLATE: ClassVar = "django://{app_label}/{model_name}/schema"
    FILE_TEMPLATE: ClassVar = "django://{app_label}/{model_name}/{pk}/{field}"
    # Member of a result that has the URL of a row in the admin, and column with these URLs in a page.
    ADMIN_URL: ClassVar = "admin_url"

    def __init__(self, model: "ModelAccess") -> None:
        self.model = model
        self.exposure = model.exposure

    def row(self, pk: Any) -> str:
        """Return the URI of the row with this primary key."""
        return f"{self._model}/{_key_part(pk_text(pk))}"

    def file(self, pk: Any, name: str) -> str:
        """Return the URI of the file in the field ``name`` of a row."""
        return f"{self.row(pk)}/{name}"

    def pattern(self) -> str:
        """Return the URI of a row with a variable for the primary key."""
        return f"{self._model}/{{{self.exposure.opts.pk.name}}}"

    def schema(self) -> str:
        """Return the URI of the model's description."""
        return f"{self._model}/{ParsedURI.SCHEMA}"

    def page(self, **query: str | None) -> str:
        """Return the URI of a page of the model's rows; members of ``query`` that are None are left out."""
        opts = self.exposure.opts
        values = {"app_label": opts.app_label, "model_name": opts.model_name, **query}
        return _PAGE.expand({name: value for name, value in values.items() if value})

    def admin_url(self, row: "Model") -> str | None:
        """Return the URL of a row's page in the admin, None if that would not open for the caller."""
        return self.admin_urls([row.pk], {row.pk: row})[0]

    def admin_urls(self, keys: "Sequence[Any]", rows: "Mapping[Any, Model] | None" = None) -> list[str | None]:
        """Return the URLs in the admin of the rows with these keys; ``rows`` are those already read."""
        none: list[str | None] = [None] * len(keys)
        admin = self._admin
        origin = self._origin
        if admin is None or origin is None:
            return none
        found = call_hook(self.exposure.label, "get_queryset", self._opened, admin, keys, rows, default=())
        urls = none
        for place, key in enumerate(keys):
            path = self.model.request.admin_path(self.exposure, key) if key in found else None
            if path is not None:
                urls[place] = f"{origin}{path}"
        return urls

    def urls_of(self, rows: "Sequence[Sequence[Any]]") -> list[str | None]:
        """Return the URL in the admin of each row of a page, whose first value is the row's key."""
        opts = self.exposure.opts
        if not rows or len(opts.pk_fields) != 1:
            return [None] * len(rows)
        return self.admin_urls([opts.pk.to_python(plain_key(row[0])) for row in rows])

    @property
    def _model(self) -> str:
        path = f"{self.exposure.opts.app_label}/{self.exposure.opts.model_name}"
        # A URI has only ASCII characters (RFC 3986, section 2). Most names need no escapes.
        return ParsedURI.SCHEME + (path if path.isascii() else UriTemplate.encode(path, safe="/"))

    @property
    def _origin(self) -> str | None:
        parts = urlsplit(self.model.request.mcp.resource or str(settings.BASE_URL or ""))
        if parts.netloc:
            return f"{parts.scheme}://{parts.netloc}"
        return None

    @property
    def _admin(self) -> Any:
        """The ``ModelAdmin`` that has a page for each row, None for no such admin."""
        exposure = self.exposure
        own = next((owner for owner in exposure.permission_owners if isinstance(owner, ModelAdmin)), None)
        if own is not None:
            return own
        for site in (exposure.site.admin_site or default_site, *all_sites):
            if site.name == exposure.admin_site_name and site.is_registered(exposure.model):
                return site.get_model_admin(exposure.model)
        return None

    def _opened(self, admin: Any, keys: "Sequence[Any]", rows: "Mapping[Any, Model] | None") -> "Collection[Any]":
        """Return the keys of the rows, all visible to the caller, whose page in the admin opens for the caller."""
        exposure = self.exposure
        is_stock = all(_is_of(admin, hook, "django.") for hook in _VERDICTS)
        is_own = admin in exposure.permission_owners and all(_is_of(exposure, hook, "mcp_django.") for hook in _HOOKS)
        if is_own and (is_stock or rows is not None):
            # The same checks were made before the rows were shown.
            return keys
        if not admin.admin_site.has_permission(self.model.request):
            return ()
        has_own_rows = not is_own and not _is_of(admin, "get_queryset", "django.")
        if is_stock and not has_own_rows:
            if admin.has_view_or_change_permission(self.model.request):
                return keys
            return ()
        if rows is None or has_own_rows:
            rows = admin.get_queryset(self.model.request).in_bulk(list(keys))
        return [key for key, row in rows.items() if admin.has_view_or_change_permission(self.model.request, row)]


_PAGE: Final = UriTemplate(Address.PAGE_TEMPLATE)


def _key_part(key: str) -> str:
    text = UriTemplate.encode(key)
    # Escape texts that would not be read as a key.
    if text in (".", "..", ParsedURI.SCHEMA):
        return f"%{ord(text[0]):02X}{text[1:]}"
    return text


def _name(part: str) -> str:
    """Read an app label or model name. Names with other letters than ASCII may come as they are, or escaped."""
    if "%" not in part:
        return part
    try:
        name = UriTemplate.decode(part)
    except ValueError:
        raise NotFound from None
    if UriTemplate.encode(name) != ESCAPE.sub(lambda found: found[0].upper(), part):
        raise NotFound
    return name


def _is_of(owner: Any, hook: str, package: str) -> bool:
    """Return whether the hook is the package's own."""
    return getattr(type(owner), hook).__module__.startswith(package) and hook not in vars(owner)
