from django.urls import include, path
from rest_framework.routers import DefaultRouter

from tests.restapp import views
from tests.restapp.site import site

router = DefaultRouter()
router.register("orders", views.OrderViewSet)
router.register("clients", views.ClientViewSet)
router.register(r"orders/(?P<order_pk>\d+)/items", views.ItemViewSet, "item")
router.register("clock", views.ClockViewSet, "clock")
router.register("uploads", views.UploadViewSet, "upload")
router.register(r"(?P<version>v\d)/versioned", views.VersionedViewSet, "versioned")
router.register("cached", views.CachedViewSet, "cached")

urlpatterns = [
    path("api/", include(router.urls)),
    path("rest", site.urls),
    path("", include("tests.urls")),
]
