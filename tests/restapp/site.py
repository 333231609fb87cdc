"""A site that has ViewSets and nothing else, mounted at `/rest`."""

from mcp_django import MCPSite
from tests.restapp import views

site = MCPSite("rest")
site.register_viewset("orders", views.OrderViewSet)
site.register_viewset("clients", views.ClientViewSet)
site.register_viewset(r"orders/(?P<order_pk>\d+)/items", views.ItemViewSet, "item", name="items")
site.register_viewset("clock", views.ClockViewSet, "clock")
site.register_viewset("uploads", views.UploadViewSet, "upload")
site.register_viewset(r"(?P<version>v\d)/versioned", views.VersionedViewSet, "versioned", kwargs={"version": "v1"})
site.register_viewset("cached", views.CachedViewSet, "cached")
