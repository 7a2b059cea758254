"""The graph net: a scheduler with one set of weights for systems of every size, trained without labels."""
