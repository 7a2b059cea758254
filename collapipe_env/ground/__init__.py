"""What everything stands on: errors, arrays, files, registries, compilation, signals."""
