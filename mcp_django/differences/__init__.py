"""What a write does, row by row, before and after: to try it first, to keep it, and to take it back."""
