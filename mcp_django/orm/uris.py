"""URIs of models, rows, pages and files: ``django://{app_label}/{model_name}[/{pk}[/{field}]]``.

Each thing has one URI: labels are in lower case, and a primary key is spelt as ``pk_text`` writes it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from django.contrib.admin import ModelAdmin
from django.contrib.admin import site as default_site
from django.contrib.admin.sites import all_sites

from ..conf import settings
from ..context.admin_page_and_language import admin_path
from ..context.signing import can_link, ticket_url
from ..exceptions import NotFound
from ..protocol.uri_templates import UriTemplate, percent_decode, percent_encode
from ..runtime.failing_hooks import call_hook
from .column_values import pk_text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from django.db.models import Model

    from ..context.request import MCPRequest
    from ..exposures.model_exposure import ModelExposure

SCHEME: Final = "django://"
# Purpose of the tickets for downloads, and their part of the URL's path.
DOWNLOADS: Final = "files"
RECORD_TEMPLATE: Final = "django://{app_label}/{model_name}/{pk}"
PAGE_TEMPLATE: Final = "django://{app_label}/{model_name}{?cursor,search,ordering,fields}"
SCHEMA_TEMPLATE: Final = "django://{app_label}/{model_name}/schema"
FILE_TEMPLATE: Final = "django://{app_label}/{model_name}/{pk}/{field}"
SCHEMA: Final = "schema"
# Member of a result that has the URL of a row in the admin, and column with these URLs in a page.
ADMIN_URL: Final = "admin_url"
ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
# Maximum number of characters of a URI: longer ones cannot come from this server. A cursor is the longest part.
MAX_URI: Final = 8192
# Hooks of an admin that decide whether a page opens, and hooks of an exposure that decide whether a row is visible.
_VERDICTS: Final = ("has_view_or_change_permission", "has_view_permission", "has_change_permission")
_HOOKS: Final = ("has_view_permission", "has_permission", "get_queryset")
_PAGE: Final = UriTemplate(PAGE_TEMPLATE)


@dataclass(frozen=True, slots=True)
class Address:
    """Parsed ``django://`` URI of a model's page (``query``), schema, row (``pk``), or a file (``field_name``)."""

    label: str
    pk: str | None = None
    field_name: str | None = None
    is_schema: bool = False
    query: Mapping[str, str] = field(default_factory=dict)


def _model_uri(exposure: "ModelExposure") -> str:
    path = f"{exposure.opts.app_label}/{exposure.opts.model_name}"
    # A URI has only ASCII characters (RFC 3986, section 2). Most names need no escapes.
    return SCHEME + (path if path.isascii() else percent_encode(path, safe="/"))


def row_uri(exposure: "ModelExposure", pk: Any) -> str:
    """Return the ``django://`` URI of the row with this primary key."""
    return f"{_model_uri(exposure)}/{_key_part(pk_text(pk))}"


def _key_part(key: str) -> str:
    text = percent_encode(key)
    # Escape texts that would not be read as a key.
    return f"%{ord(text[0]):02X}{text[1:]}" if text in (".", "..", SCHEMA) else text


def row_uri_pattern(exposure: "ModelExposure") -> str:
    """Return the ``django://`` URI of a row of the model with a variable for the primary key."""
    return f"{_model_uri(exposure)}/{{{exposure.opts.pk.name}}}"


def schema_uri(exposure: "ModelExposure") -> str:
    """Return the URI of the model's description."""
    return f"{_model_uri(exposure)}/{SCHEMA}"


def page_uri(exposure: "ModelExposure", **query: str | None) -> str:
    """Return the ``django://`` URI of a page of the model's rows."""
    values = {"app_label": exposure.opts.app_label, "model_name": exposure.opts.model_name, **query}
    return _PAGE.expand({name: value for name, value in values.items() if value})


def parse_uri(uri: Any) -> Address:
    """Parse a ``django://`` URI: a model's page, schema, row or file, which need not exist."""
    if not isinstance(uri, str) or len(uri) > MAX_URI or not uri.startswith(SCHEME):
        raise NotFound
    path, mark, _ = uri.partition("?")
    parts = path[len(SCHEME) :].split("/", 4)
    if len(parts) == 2:
        if (found := _PAGE.match(uri)) is None:
            raise NotFound
        return Address(f"{found.pop('app_label')}.{found.pop('model_name')}", query=found)
    if len(parts) not in (3, 4) or mark or "#" in uri:
        raise NotFound
    app_label, model_name, pk, *rest = parts
    label = f"{_name(app_label)}.{_name(model_name)}"
    if pk == SCHEMA and not rest:
        return Address(label, is_schema=True)
    try:
        address = Address(label, pk=percent_decode(pk), field_name=percent_decode(rest[0]) if rest else None)
    except ValueError:
        raise NotFound from None
    # Any other spelling would be a second URI of the same thing. Escapes may have either case (RFC 3986, 6.2.2.1).
    parts = [ESCAPE.sub(lambda found: found[0].upper(), part) for part in (pk, *rest)]
    if [_key_part(address.pk or ""), *map(percent_encode, filter(None, [address.field_name]))] != parts:
        raise NotFound
    return address


def _name(part: str) -> str:
    """Read an app label or model name. Names with other letters than ASCII may come as they are, or escaped."""
    if "%" not in part:
        return part
    try:
        name = percent_decode(part)
    except ValueError:
        raise NotFound from None
    if percent_encode(name) != ESCAPE.sub(lambda found: found[0].upper(), part):
        raise NotFound
    return name


def admin_url(request: "MCPRequest", exposure: "ModelExposure", row: "Model") -> str | None:
    """Return the URL that goes with a row's URI: its page in the admin, None if that would not open for the caller."""
    return admin_urls(request, exposure, [row.pk], {row.pk: row})[0]


def admin_urls(
    request: "MCPRequest", exposure: "ModelExposure", keys: "Sequence[Any]", rows: "Mapping[Any, Model] | None" = None
) -> list[str | None]:
    """Return, for the URI of each row with these keys, its URL in the admin; ``rows`` are those already read."""
    admin, origin = _admin_of(exposure), _origin(request)
    none: list[str | None] = [None] * len(keys)
    if admin is None or origin is None:
        return none
    found = call_hook(exposure.label, "get_queryset", _opened, request, exposure, admin, keys, rows, default=())
    paths = (admin_path(request, exposure, key) if key in found else None for key in keys)
    return [f"{origin}{path}" if path is not None else None for path in paths]


def _origin(request: "MCPRequest") -> str | None:
    parts = urlsplit(request.mcp.resource or str(settings.BASE_URL or ""))
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None


def _admin_of(exposure: "ModelExposure") -> Any:
    """For the URIs of a model's rows, return the ``ModelAdmin`` that has a URL for each; None for no such admin."""
    own = next((owner for owner in exposure.permission_owners if isinstance(owner, ModelAdmin)), None)
    if own is not None:
        return own
    for site in (exposure.site.admin_site or default_site, *all_sites):
        if site.name == exposure.admin_site_name and site.is_registered(exposure.model):
            return site.get_model_admin(exposure.model)
    return None


def _opened(
    request: "MCPRequest",
    exposure: "ModelExposure",
    admin: Any,
    keys: "Sequence[Any]",
    rows: "Mapping[Any, Model] | None",
) -> "Collection[Any]":
    """Return the keys of the rows, all visible to the caller, whose admin URL beside the URI opens for the caller."""
    is_stock = all(_is_of(admin, hook, "django.") for hook in _VERDICTS)
    is_own = admin in exposure.permission_owners and all(_is_of(exposure, hook, "mcp_django.") for hook in _HOOKS)
    if is_own and (is_stock or rows is not None):
        # The same checks were made before the rows were shown.
        return keys
    if not admin.admin_site.has_permission(request):
        return ()
    has_own_rows = not is_own and not _is_of(admin, "get_queryset", "django.")
    if is_stock and not has_own_rows:
        return keys if admin.has_view_or_change_permission(request) else ()
    if rows is None or has_own_rows:
        rows = admin.get_queryset(request).in_bulk(list(keys))
    return [key for key, row in rows.items() if admin.has_view_or_change_permission(request, row)]


def _is_of(owner: Any, hook: str, package: str) -> bool:
    """Return whether the hook is the package's own."""
    return getattr(type(owner), hook).__module__.startswith(package) and hook not in vars(owner)


def download_url(request: "MCPRequest", address: Address) -> str | None:
    """Turn the ``django://`` URI of a file into a URL that works for this caller for some minutes; else None.

    The URL leads to this server, which checks the caller's access again, and never to the storage itself.
    """
    if not can_link(request) or address.pk is None or address.field_name is None:
        return None
    return ticket_url(request, DOWNLOADS, address.label, address.pk, address.field_name)
