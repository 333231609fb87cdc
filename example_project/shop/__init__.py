"""A shop that sells to customers all over the world."""
