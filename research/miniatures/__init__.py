"""Miniatures: systems of two or three devices whose best schedule is found by value iteration."""
