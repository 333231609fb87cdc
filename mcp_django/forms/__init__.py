"""Django forms and formsets, filled in from JSON as a browser would fill in their page."""
