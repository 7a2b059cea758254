"""Execution of plans by processes that train, one for each role, with priced times or in real time ([X])."""
