"""Agents that come with the package: an index, one file of weights and one card each."""
