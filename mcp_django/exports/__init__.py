"""Questions as files: the rows that a caller may read, for a person who takes them away."""
