"""Studies that the documentation quotes, and that are no part of the package."""
