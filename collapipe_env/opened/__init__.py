"""Decisions that a scenario may open beside CollaPipe's own, as entries of an action."""
