"""Resources of this server within a message or result: read as the caller who gets it would read them."""

import base64

from django.db.models import Model

from ..context.request import MCPRequest
from ..exceptions import NotFound
from ..orm.uris import row_uri
from ..protocol.content import EmbeddedResource


def embed(request: MCPRequest, target: Model | str) -> EmbeddedResource:
    """Return a row, or the resource of a URI of this server, with the contents that the caller may see of it.

    Of a resource with several contents it is the first.

    Raises:
        NotFound: it is not there for this caller.
        InvalidParams: the URI asks for what a page cannot show, or for a file that is too long.
    """
    site = request.mcp.site
    if isinstance(target, Model):
        exposure = site.exposures.get(type(target))
        if exposure is None or target.pk is None:
            raise NotFound
        target = row_uri(exposure, target.pk)
    function = site.get_function_resource(request, target)
    if function is not None and not function.has_scopes(request):
        raise NotFound
    contents = function.read(request, target) if function is not None else site.read_resource(request, target)
    first = contents[0]
    body = first["text"] if "text" in first else base64.b64decode(first["blob"])
    return EmbeddedResource(first["uri"], body, first["mimeType"])
