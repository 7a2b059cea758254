"""Decisions that a scenario may open in addition to CollaPipe's own, one row each; found by name."""
