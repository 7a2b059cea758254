"""Schedulers that decide from a model or from experience: DSSRA and the learned agents.

Nothing is imported here, so that using one agent does not load the libraries of the others.
"""
