"""For those who run a site: the call log, metrics, alerts, budgets and switches."""
