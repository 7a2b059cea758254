"""Schedulers to compare with: the paper's baselines as we read them, published systems and simple controls.

Nothing is imported here, so that using one baseline does not load the others.
"""
