"""The graph net: a scheduler of one set of weights for systems of every size, trained without labels."""
