"""Flower as an optional carrier of a round's models; the head's traffic uses its own connection [X].

Modules here can be imported without Flower, except :mod:`strategy` and :mod:`apps`.
"""
