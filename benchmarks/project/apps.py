"""The app of the measured project."""

from django.apps import AppConfig


class BenchConfig(AppConfig):
    """Authors, articles and events."""

    name = "benchmarks.project"
    label = "bench"
    default_auto_field = "django.db.models.BigAutoField"
