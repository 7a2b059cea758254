"""Execution: plans played by processes that train, one a role, with the priced times or in real time ([X])."""
