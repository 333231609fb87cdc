"""The Django project that is measured, and what else serves its rows."""
