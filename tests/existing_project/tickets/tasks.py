from celery import shared_task
from django.core.mail import send_mail

from .models import Ticket


@shared_task
def tell_customer(pk):
    ticket = Ticket.objects.select_related("customer").get(pk=pk)
    send_mail(f"{ticket.subject}: {ticket.get_status_display()}", "", None, [ticket.customer.email])
