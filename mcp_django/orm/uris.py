"""URIs of models, rows, pages and files: ``django://{app_label}/{model_name}[/{pk}[/{field}]]``.

One thing has one URI: labels are lower case, and a primary key is spelt as ``pk_text`` writes it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ..conf import settings
from ..context.signing import can_link, ticket_url
from ..exceptions import NotFound
from ..protocol.uri_templates import UriTemplate, percent_decode, percent_encode
from .columns import pk_text

if TYPE_CHECKING:
    from ..context.request import Exposure, MCPRequest

SCHEME: Final = "django://"
# The use of the tickets of downloads, and the part of the path.
DOWNLOADS: Final = "files"
RECORD_TEMPLATE: Final = "django://{app_label}/{model_name}/{pk}"
PAGE_TEMPLATE: Final = "django://{app_label}/{model_name}{?cursor,search,ordering,fields}"
SCHEMA_TEMPLATE: Final = "django://{app_label}/{model_name}/schema"
FILE_TEMPLATE: Final = "django://{app_label}/{model_name}/{pk}/{field}"
SCHEMA: Final = "schema"
ESCAPE: Final = re.compile("%[0-9A-Fa-f]{2}")
# Longer ones cannot come from this server: a cursor is the longest part.
MAX_URI: Final = 8192
_PAGE: Final = UriTemplate(PAGE_TEMPLATE)


@dataclass(frozen=True, slots=True)
class Address:
    """What a URI names: a model's page (``query``), its schema, a row (``pk``), or a file of a row (``field_name``)."""

    label: str
    pk: str | None = None
    field_name: str | None = None
    is_schema: bool = False
    query: Mapping[str, str] = field(default_factory=dict)


def _model_uri(exposure: "Exposure") -> str:
    return f"{SCHEME}{exposure.opts.app_label}/{exposure.opts.model_name}"


def row_uri(exposure: "Exposure", pk: Any) -> str:
    """Return the URI of the row with this primary key."""
    return f"{_model_uri(exposure)}/{_key_part(pk_text(pk))}"


def _key_part(key: str) -> str:
    text = percent_encode(key)
    # These would be read as something else than a key.
    return f"%{ord(text[0]):02X}{text[1:]}" if text in (".", "..", SCHEMA) else text


def row_uri_pattern(exposure: "Exposure") -> str:
    """Return the URI of a row of the model with a variable for the primary key."""
    return f"{_model_uri(exposure)}/{{{exposure.opts.pk.name}}}"


def schema_uri(exposure: "Exposure") -> str:
    """Return the URI of the model's description."""
    return f"{_model_uri(exposure)}/{SCHEMA}"


def page_uri(exposure: "Exposure", **query: str | None) -> str:
    """Return the URI of a page of the model's rows."""
    values = {"app_label": exposure.opts.app_label, "model_name": exposure.opts.model_name, **query}
    return _PAGE.expand({name: value for name, value in values.items() if value})


def parse_uri(uri: Any) -> Address:
    """Return what a URI names, without asking whether it is there.

    Raises:
        NotFound: it is not a URI that this server gives.
    """
    if not isinstance(uri, str) or len(uri) > MAX_URI or not uri.startswith(SCHEME):
        raise NotFound
    path, mark, _ = uri.partition("?")
    parts = path[len(SCHEME) :].split("/", 4)
    if len(parts) == 2:
        return _page_address(uri)
    if len(parts) not in (3, 4) or mark or "#" in uri:
        raise NotFound
    app_label, model_name, pk, *rest = parts
    label = f"{app_label}.{model_name}"
    if pk == SCHEMA and not rest:
        return Address(label, is_schema=True)
    try:
        address = Address(label, pk=percent_decode(pk), field_name=percent_decode(rest[0]) if rest else None)
    except ValueError:
        raise NotFound from None
    # Another spelling would be another URI of the same thing; the digits of escapes have no case (RFC 3986, 6.2.2.1).
    parts = [ESCAPE.sub(lambda found: found[0].upper(), part) for part in (pk, *rest)]
    if [_key_part(address.pk or ""), *map(percent_encode, filter(None, [address.field_name]))] != parts:
        raise NotFound
    return address


def _page_address(uri: str) -> Address:
    found = _PAGE.match(uri)
    if found is None:
        raise NotFound
    label = f"{found.pop('app_label')}.{found.pop('model_name')}"
    return Address(label, query=found)


def download_url(request: "MCPRequest", address: Address) -> str | None:
    """Return a URL that is good for this file and caller for some minutes, None where there are none.

    It leads to this server, which asks again who may have the file: never to the storage itself.
    """
    if not settings.DOWNLOAD_LINKS or not can_link(request) or address.pk is None or address.field_name is None:
        return None
    return ticket_url(request, DOWNLOADS, address.label, address.pk, address.field_name)
