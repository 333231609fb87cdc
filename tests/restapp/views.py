"""ViewSets as projects write them; they know nothing of MCP."""

import time

from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers
from rest_framework import filters, mixins, pagination, permissions, status, throttling, versioning, viewsets
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action
from rest_framework.exceptions import APIException
from rest_framework.parsers import MultiPartParser
from rest_framework.renderers import StaticHTMLRenderer
from rest_framework.response import Response

from tests.restapp import serializers
from tests.restapp.models import Client, Item, Order


class Pages(pagination.PageNumberPagination):
    page_size = 2
    page_size_query_param = "page_size"
    max_page_size = 1000


class Limits(pagination.LimitOffsetPagination):
    default_limit = 2


class Cursors(pagination.CursorPagination):
    page_size = 2
    ordering = "id"


class Explodes(BaseAuthentication):
    """The project's own way to sign in: never run for an MCP caller."""

    def authenticate(self, request):
        if "HTTP_X_REST" not in request.META:
            raise AssertionError("the project's authenticator was run")
        return request._request.user, None

    def authenticate_header(self, request):
        return "Test"


class OwnerWrites(permissions.BasePermission):
    message = "Only its owner may write it."

    def has_object_permission(self, request, view, obj):
        return request.method in permissions.SAFE_METHODS or obj.owner == request.user


class Conflict(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_detail = "It is locked."


class OrderViewSet(viewsets.ModelViewSet):
    """Orders of the shop."""

    authentication_classes = [Explodes]
    queryset = Order.objects.all()
    serializer_class = serializers.OrderSerializer
    permission_classes = [permissions.IsAuthenticated, OwnerWrites]
    filter_backends = [filters.SearchFilter, filters.OrderingFilter]
    search_fields = ["number", "note"]
    ordering_fields = ["number", "total"]
    pagination_class = Pages

    def get_queryset(self) -> QuerySet[Order]:
        orders = super().get_queryset()
        return orders if self.request.user.is_staff else orders.exclude(number__startswith="hidden")

    def get_serializer_class(self):
        if self.action == "list":
            return serializers.BriefSerializer
        if self.request.user.is_staff and self.action in ("create", "update", "partial_update"):
            return serializers.StaffSerializer
        return super().get_serializer_class()

    def perform_create(self, serializer):
        serializer.save(owner=self.request.user)

    def perform_destroy(self, order):
        if order.locked:
            raise Conflict
        order.delete()

    @action(detail=True, methods=["post"])
    def mark_paid(self, request, pk=None):
        """Mark an order as paid."""
        order = self.get_object()
        order.status = "paid"
        order.save()
        return Response(self.get_serializer(order).data)

    mark_paid.mcp_destructive = False

    @action(detail=True, methods=["post"], serializer_class=serializers.RefundSerializer)
    def refund(self, request, pk=None):
        order = self.get_object()
        data = serializers.RefundSerializer(data=request.data)
        data.is_valid(raise_exception=True)
        return Response({"refunded": data.data["amount"], "order": order.pk}, status=202)

    refund.mcp_destructive = False

    @action(detail=True, methods=["post", "delete"])
    def favourite(self, request, pk=None):
        self.get_object()
        return Response(status=204)

    @action(detail=True, url_path=r"items/(?P<item_pk>\d+)")
    def item(self, request, pk=None, item_pk=None):
        found = self.get_object().items.filter(pk=item_pk).values("name").first()
        return Response(found, status=200 if found else 404)

    @action(detail=False)
    def stats(self, request):
        return Response(self.get_queryset().values("status").annotate(n=Count("pk")).order_by("status"))

    @action(detail=False)
    def export(self, request):
        rows = "".join(f"{order.number}\n" for order in self.get_queryset())
        return HttpResponse(rows, "text/csv", headers={"Content-Disposition": 'attachment; filename="orders.csv"'})

    @action(detail=False, permission_classes=[permissions.IsAdminUser])
    def audit(self, request):
        return Response({"headers": sorted(request.headers), "auth": request.auth, "cookies": request.COOKIES})

    @action(detail=False)
    def broken(self, request):
        raise RuntimeError("SELECT secret FROM /srv/project/settings.py")

    @action(detail=False, methods=["post"])
    def atomic(self, request):
        Order.objects.create(number=request.data["number"], owner=request.user)
        raise Conflict("No more.")

    atomic.mcp_destructive = False

    @action(detail=False)
    def elsewhere(self, request):
        return Response(status=302, headers={"Location": "http://internal.example/admin/"})

    @action(detail=False)
    def refused(self, request):
        raise PermissionDenied


class ClientViewSet(viewsets.ReadOnlyModelViewSet):
    queryset = Client.objects.order_by("name")
    serializer_class = serializers.ClientSerializer
    permission_classes = [permissions.IsAdminUser]
    pagination_class = Limits
    lookup_field = "name"
    lookup_value_regex = "[^/]+"


class OfTheOrder(permissions.BasePermission):
    """Asks the URL."""

    def has_permission(self, request, view):
        return Order.objects.filter(pk=view.kwargs["order_pk"], owner=request.user).exists()


class ItemViewSet(mixins.ListModelMixin, mixins.CreateModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    serializer_class = serializers.ItemSerializer
    permission_classes = [OfTheOrder]
    pagination_class = Cursors

    def get_queryset(self) -> QuerySet[Item]:
        return Item.objects.filter(order=self.kwargs["order_pk"])

    def perform_create(self, serializer):
        serializer.save(order_id=self.kwargs["order_pk"])


class TwoAMinute(throttling.UserRateThrottle):
    rate = "2/min"


class ClockViewSet(viewsets.ViewSet):
    """A ViewSet without a model."""

    permission_classes = [permissions.IsAuthenticated]
    throttle_classes = [TwoAMinute]

    def list(self, request):
        return Response({"zone": time.tzname[0], "query": request.query_params})

    def create(self, request):
        return Response(request.data, status=201)

    def destroy(self, request, pk=None):
        return Response(status=204)


class UploadViewSet(viewsets.GenericViewSet):
    """It speaks no JSON to REST clients."""

    serializer_class = serializers.UploadSerializer
    permission_classes = [permissions.IsAuthenticated]
    parser_classes = [MultiPartParser]
    renderer_classes = [StaticHTMLRenderer]

    def create(self, request):
        data = self.get_serializer(data=request.data)
        data.is_valid(raise_exception=True)
        return Response({"title": data.validated_data["title"]}, status=201)


class VersionedViewSet(viewsets.ViewSet):
    permission_classes = [permissions.IsAuthenticated]
    versioning_class = versioning.URLPathVersioning

    def list(self, request, version):
        return Response({"version": request.version})


class CachedViewSet(viewsets.ViewSet):
    permission_classes = [permissions.IsAuthenticated]

    @method_decorator(cache_page(60))
    @method_decorator(vary_on_headers("Authorization"))
    def list(self, request):
        return Response({"user": request.user.username})
