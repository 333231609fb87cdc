from rest_framework import serializers

from tests.restapp.models import Client, Item, Order


class ItemSerializer(serializers.ModelSerializer):
    class Meta:
        model = Item
        fields = ["id", "name", "quantity"]


class OrderSerializer(serializers.ModelSerializer):
    """The context has to be the view's: `mine` asks its request."""

    mine = serializers.SerializerMethodField()
    total = serializers.DecimalField(max_digits=8, decimal_places=2, min_value=0, required=False)

    class Meta:
        model = Order
        fields = ["id", "number", "client", "status", "total", "note", "locked", "owner", "mine"]
        read_only_fields = ["owner", "locked"]

    def get_mine(self, order: Order) -> bool:
        return order.owner == self.context["request"].user


class BriefSerializer(serializers.ModelSerializer):
    class Meta:
        model = Order
        fields = ["id", "number", "status"]


class StaffSerializer(OrderSerializer):
    """Members of the staff may write more."""

    class Meta(OrderSerializer.Meta):
        read_only_fields = ["owner"]


class RefundSerializer(serializers.Serializer):
    amount = serializers.DecimalField(max_digits=8, decimal_places=2)
    reason = serializers.ChoiceField(choices=["late", "broken"], help_text="Why")
    items = ItemSerializer(many=True, required=False)


class ClientSerializer(serializers.HyperlinkedModelSerializer):
    class Meta:
        model = Client
        fields = ["url", "name"]
        extra_kwargs = {"url": {"lookup_field": "name"}}


class UploadSerializer(serializers.Serializer):
    title = serializers.CharField()
    picture = serializers.FileField(required=False)
