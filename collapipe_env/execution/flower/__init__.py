"""Flower as an optional carrier of a round's updates: broadcast and upload go by it, the head's traffic beside it ([X]).

Flower itself is imported by :mod:`flower_strategy` and :mod:`flower_apps` alone.
"""
