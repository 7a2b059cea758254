"""Execution: plans played by processes that train, one a role, by priced times or in real time ([X])."""
