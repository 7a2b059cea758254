"""Decisions that a scenario may open in addition to CollaPipe's own, as entries of an action."""
