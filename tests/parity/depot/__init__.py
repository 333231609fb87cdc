"""A depot of crates, whose admins use what the example's do not."""
