"""Tables and pictures that are no grids of plays; ``experiments.yaml`` names the functions."""
