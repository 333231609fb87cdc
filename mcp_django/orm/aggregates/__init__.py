"""Counts, sums and other aggregates of the rows that the caller may read."""
