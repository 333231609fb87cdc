"""The address at which a person downloads an export, below that of the endpoint.

It takes nothing but the session of the very user who asked for the file. Each download reads the question again by the
rights of that moment. Nobody learns from an answer whether somebody else's file is there.
"""

import logging
from io import BytesIO
from typing import Any, Final

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, re_path
from django.utils.decorators import method_decorator

from ...context.refused_request_log import report
from ...context.request import MCPRequest, middleware_attributes, scope_from_wsgi
from ...exceptions import CallRefused, InsufficientScope, NotFound, ToolError
from ...exports.kept_exports import KeptExport
from ...oauth.resource_urls import resource_url, same_resource
from ...operating.recorded_calls import RecordedCall
from ...operating.switches import board
from ...runtime.cache_and_rate_limits import Caller, LimitExceeded
from ...server.methods.handler_interface import log_failure
from ...server.stored_calls import StoredCall
from ...sites import MCPSite
from .file_links import HEADERS, SWITCHED_OFF
from .file_streams import OpenFile
from .http_exchange import RETRY_AFTER, Refused
from .session_page import SessionPage

logger = logging.getLogger("mcp_django.exports")

# Only the log says which it may be; the page is the same for all.
GONE: Final = "it has expired or never was, it is another user's, or its user may no longer see what is in it"
WHO_SEES_IT: Final = "If the user should have it, mcp_inspect --user shows what they see."
AWAY: Final = "The storage of the files does not answer (error {}). Try again soon."
WHY_AWAY: Final = "The error of that number, logged before this, says why the storage failed."
TOO_MANY: Final = "Too many calls. Try again in {} seconds."
# What the question, read again, raises for whoever could not ask it now.
LOST: Final = (NotFound, ToolError, InsufficientScope, PermissionDenied)


def export_urls(site: MCPSite) -> list[URLPattern]:
    """Return the URL pattern of downloads of exports, relative to the site's endpoint."""
    view: Any = ExportView.as_view(site=site)
    return [re_path(rf"^(?:/)?{KeptExport.PURPOSE}/(?P<export_id>[0-9a-f]{{32}})/?$", view, name="export")]


@method_decorator(login_not_required, name="dispatch")
class ExportView(SessionPage):
    """The file, for its user; a page that says why there is none, for anybody else who is signed in."""

    http_method_names = ("get", "head")
    template_name = "mcp_django/export.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Send the file."""
        try:
            Caller.of(request).count_call()
            kept = self._kept()
            stream = self._opened(kept)
        except (*LOST, CallRefused, LimitExceeded, Refused) as error:
            return self._refused(_refusal(error))
        row = kept.row
        what = row.model or row.name
        logger.info("%s downloads the export of call %s: %d rows of %s", row.username, row.call, row.rows, what)
        return self._file(kept, stream)

    def _kept(self) -> KeptExport:
        """Return the export of this address, if its user could still ask for it; raise one of ``LOST`` otherwise."""
        path = self.request.path_info.rpartition(f"/{KeptExport.PURPOSE}/")[0]
        kept = KeptExport.find(self.request.user, self.site.name, self.kwargs["export_id"])
        if not same_resource(kept.row.resource, resource_url(self.request, path)):
            raise NotFound
        caller = self._as_caller(kept, path)
        caller.mcp.off = board.current()
        if caller.mcp.off is not None:
            recorded = RecordedCall(caller)
            recorded.describe_caller()
            recorded.refuse_if_off()
        kept.check(caller)
        return kept

    def _as_caller(self, kept: KeptExport, path: str) -> MCPRequest:
        """Return a request like that of the call which made the export, of the user whose session this is."""
        row = kept.row
        about = {"resource": row.resource, "path": path, "client": row.client_name, "client_id": row.client_id}
        call = StoredCall({"version": "", "checksum": "", **about, **kept.caller})
        attributes = middleware_attributes(self.request)
        return call.request(scope_from_wsgi(self.request), self.site, self.request.user, attributes)

    @staticmethod
    def _opened(kept: KeptExport) -> Any:
        try:
            return kept.open()
        except NotFound:
            raise
        except Exception as error:
            text = AWAY.format(log_failure("A download", error))
            raise Refused(503, text, WHY_AWAY, dict(RETRY_AFTER)) from None

    def _file(self, kept: KeptExport, stream: Any) -> HttpResponseBase:
        row = kept.row
        response = FileResponse(stream, as_attachment=True, filename=row.name, content_type=kept.mime_type)
        what = f"The download of the export of call {row.call}"
        if self.request.method == "HEAD":
            # Not every server leaves out a body after the head.
            OpenFile(BytesIO(), 0, what).send_as(response, self.request)
        else:
            OpenFile(stream, row.size, what).send_as(response, self.request)
        # GZipMiddleware would remove Content-Length.
        response["Content-Encoding"] = "identity"
        response["Content-Length"] = str(row.size)
        response["Accept-Ranges"] = "none"
        for name, value in HEADERS.items():
            response[name] = value
        return response

    def _refused(self, refusal: Refused) -> HttpResponse:
        """Return the page in place of the file."""
        report(refusal.status, f"the download of an export: {refusal.seen}", refusal.remedy)
        response = self.render_to_response({"message": refusal.text})
        response.status_code = refusal.status
        for name, value in refusal.headers.items():
            response[name] = value
        return response


def _refusal(error: Exception) -> Refused:
    """Return how a download is refused; without a text where nobody may learn whether there is a file."""
    match error:
        case Refused():
            return error
        case CallRefused():
            return Refused(403, error.message, SWITCHED_OFF)
        case LimitExceeded():
            after = str(error.retry_after)
            return Refused(429, TOO_MANY.format(after), error.remedy, {"Retry-After": after})
        case _:
            return Refused(404, "", WHO_SEES_IT, seen=GONE)
