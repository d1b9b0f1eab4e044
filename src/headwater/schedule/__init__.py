"""Scheduling: which stream tables are due, in which order and together with which others, and who refreshes them."""
