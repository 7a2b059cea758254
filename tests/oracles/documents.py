"""Documents of packed rows, cut again at the tokens that end them."""

import numpy as np

NO_TARGET, END = -100, 2


def documents_of(targets):
    """Tokens of each document, its end with it, from rows of targets."""
    stream = targets[targets != NO_TARGET]
    return np.split(stream, np.flatnonzero(stream == END) + 1)[:-1]
