"""Execution of a priced plan by real processes: roles, messages and clocks [X]."""
