"""Fitting the surrogate's constants to real runs, and profiles of radio links to traces."""
