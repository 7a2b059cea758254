"""Searches, problems and prices that several published systems share."""
