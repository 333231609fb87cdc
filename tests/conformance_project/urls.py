from django.urls import path

import mcp_django

urlpatterns = [
    path("mcp", mcp_django.site.urls),
    path("sse", mcp_django.site.sse_urls),
]
