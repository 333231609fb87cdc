"""The shop's REST API: reviews, as the website reads and moderates them."""

from rest_framework import filters, pagination, permissions, serializers, viewsets

from .models import Review


class ModelPermissions(permissions.DjangoModelPermissions):
    """Reading needs a permission, too."""

    perms_map = permissions.DjangoModelPermissions.perms_map | {"GET": ["%(app_label)s.view_%(model_name)s"]}


class ReviewPagination(pagination.PageNumberPagination):
    page_size = 20
    page_size_query_param = "page_size"
    max_page_size = 100


class ReviewSerializer(serializers.ModelSerializer):
    product_name = serializers.CharField(source="product.name", read_only=True)

    class Meta:
        model = Review
        fields = ["id", "product", "product_name", "customer", "rating", "title", "body", "created"]
        read_only_fields = ["created"]


class ReviewViewSet(viewsets.ModelViewSet):
    """What customers think of products."""

    queryset = Review.objects.select_related("product")
    serializer_class = ReviewSerializer
    permission_classes = [ModelPermissions]
    pagination_class = ReviewPagination
    filter_backends = [filters.SearchFilter, filters.OrderingFilter]
    search_fields = ["title", "body", "product__name"]
    ordering_fields = ["created", "rating"]
    http_method_names = ["get", "post", "patch", "delete", "head", "options"]
