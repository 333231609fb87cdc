"""`python -m benchmarks`: what a call costs, beside the official SDK's server and a bare Django view."""
