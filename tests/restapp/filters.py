"""A ViewSet that django-filter filters."""

import django_filters
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import permissions, viewsets

from tests.restapp import serializers
from tests.restapp.models import Client, Order


def clients_of(request):
    """What a caller may filter by depends on who it is; whoever asks without a request gets nothing."""
    assert request is not None
    return Client.objects.exclude(name="Hidden")


class OrderFilter(django_filters.FilterSet):
    status = django_filters.MultipleChoiceFilter(choices=Order._meta.get_field("status").choices)
    client = django_filters.ModelChoiceFilter(queryset=clients_of)
    total = django_filters.RangeFilter()
    number = django_filters.BaseInFilter(lookup_expr="in")
    note = django_filters.AllValuesFilter()

    class Meta:
        model = Order
        fields = ["locked"]


class FilteredViewSet(viewsets.ReadOnlyModelViewSet):
    queryset = Order.objects.order_by("pk")
    serializer_class = serializers.BriefSerializer
    permission_classes = [permissions.IsAuthenticated]
    filter_backends = [DjangoFilterBackend]
    filterset_class = OrderFilter


class PlainlyFilteredViewSet(FilteredViewSet):
    filterset_class = None
    filterset_fields = {"total": ["gte", "lt"], "status": ["exact"]}
