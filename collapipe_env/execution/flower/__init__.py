"""Flower as an optional carrier of a round's models: broadcast and updates go by it, the head's traffic beside it [X].

Modules here can be imported without Flower, except :mod:`strategy` and :mod:`apps`.
"""
