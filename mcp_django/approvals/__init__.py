"""Calls that wait for the yes of another person: rules, requests, and who decides."""
