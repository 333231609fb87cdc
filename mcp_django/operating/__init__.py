"""What those who run a site see of its calls and can do about them."""
