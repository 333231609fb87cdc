from django.db import models


class Order(models.Model):
    number = models.CharField(max_length=20)
    status = models.CharField(max_length=20)
