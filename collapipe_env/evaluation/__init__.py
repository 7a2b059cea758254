"""Comparison of schedulers: the same held-out episodes for all, statistics, one table and pictures."""
