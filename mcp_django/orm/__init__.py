"""Rows, as far as the caller may read them: columns, filters, order, pages."""
