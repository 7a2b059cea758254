"""Ground of the package: errors, arrays, files, registries, compilation, signals."""
