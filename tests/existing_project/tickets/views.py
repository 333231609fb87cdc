from rest_framework.viewsets import ModelViewSet

from .models import Ticket
from .serializers import TicketSerializer


class TicketViewSet(ModelViewSet):
    queryset = Ticket.objects.select_related("customer").order_by("pk")
    serializer_class = TicketSerializer
