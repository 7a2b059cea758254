"""Compiled functions as plain Python, so that tests of a part need not compile it.

The search of DSSRA compiles as one function, which takes half a minute. A test that calls a part of it would
have that part compiled once more. Its Python form computes the same: ``ground/test_compiled.py`` decides with
the whole search both ways.
"""

from functools import cache
from types import FunctionType

import numpy as np


def as_python(function):
    """Return a compiled function as Python, with all that it calls, and without NumPy's warnings."""
    python = getattr(function, "py_func", None)  # none with NUMBA_DISABLE_JIT=1, where it is Python already
    return np.errstate(all="ignore")(function if python is None else _python_form(python))


@cache
def _python_form(function):
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        called = getattr(names.get(name), "py_func", None)
        if called is not None:
            names[name] = _python_form(called)
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__)
