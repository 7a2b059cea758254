"""Learned schedulers: training, files, validation, and models of other libraries."""
