"""Two admins and their endpoints; endpoints whose URL or header names a tenant."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, re_path

import mcp_django
from mcp_django.context.request import MCPRequest
from tests.sitesapp import tenancy
from tests.sitesapp.admin import back_admin, front_admin
from tests.sitesapp.models import Customer, Invoice, Receipt, Shelf

front = mcp_django.MCPSite("front", admin_site=front_admin)
back = mcp_django.MCPSite("back", admin_site=back_admin)

by_header = mcp_django.MCPSite("by_header", needs_middleware=True)
by_url = mcp_django.MCPSite("by_url")


@mcp_django.register(Invoice, site=by_header)
class InvoiceExposure(mcp_django.ModelExposure):
    fields = ["number", "paid", "customer"]
    actions = ["pay"]
    filter_fields = {"number": ["exact"], "paid": ["exact"], "customer__name": ["exact"]}
    search_fields = ["number"]

    @mcp_django.action(permissions=["change"], destructive=False)
    def pay(self, request: MCPRequest, queryset: QuerySet[Invoice]) -> str:
        """Mark as paid, for whoever is the tenant by then."""
        return f"{tenancy.current.get()} paid {Invoice.objects.filter(pk__in=queryset).update(paid=True)}"


by_header.register(Customer, fields=["name", "invoices"])
by_header.register(Receipt, fields=["text", "invoice"])
by_header.register(Shelf, fields=["name", "customer", "receipts"])


@mcp_django.tool(site=by_header, read_only=True)
def whoami(request: HttpRequest) -> str:
    """Name the tenant."""
    return tenancy.current.get()


@mcp_django.resource("tenant://me", site=by_header)
def me(request: HttpRequest) -> str:
    """Name the tenant."""
    return tenancy.current.get()


@mcp_django.register(Invoice, site=by_url)
class TenantInvoiceExposure(mcp_django.ModelExposure):
    fields = ["number"]

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return Invoice.everyone.filter(tenant=request.resolver_match.kwargs["tenant"])

    def has_permission(self, request: MCPRequest, action: str, obj: Any = None) -> bool:
        member = request.user.username.startswith(request.resolver_match.kwargs["tenant"])
        return member and super().has_permission(request, action, obj)

    def save_model(self, request: MCPRequest, obj: Any, form: Any, change: bool) -> None:
        obj.tenant = request.resolver_match.kwargs["tenant"]
        super().save_model(request, obj, form, change)


@mcp_django.tool(site=by_url, read_only=True)
def which(request: HttpRequest) -> str:
    """Name the tenant of the URL."""
    assert request.resolver_match is not None
    return f"{request.resolver_match.kwargs['tenant']} {request.resolver_match.view_name}"


def closed(request: HttpRequest) -> HttpResponse:
    """Stands before the tenants, and is none of them."""
    return HttpResponse("closed")


urlpatterns = [
    path("front-admin/", front_admin.urls),
    path("back-admin/", back_admin.urls),
    path("front/mcp", front.urls),
    path("back/mcp", back.urls),
    path("tenants/mcp", by_header.urls),
    path("t/closed/mcp", closed),
    path("t/<slug:tenant>/mcp", by_url.urls),
    re_path(r"^r/(?P<tenant>[a-z]+)/", include([path("mcp", by_url.urls)])),
    path("s/<str:tenant>/mcp", by_url.urls),
    path("", include("mcp_django.oauth.urls")),
]
