"""Independent re-implementations that tests compare the package with: scalar, slow and readable.

Pytest puts `tests/` on the path: `from oracles.name import thing`. Nothing here is a test, and nothing calls
the code that it checks.
"""
