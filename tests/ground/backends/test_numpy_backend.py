"""Memory of large arrays that is used again."""

from __future__ import annotations

import tracemalloc

import torch

from collapipe_env.ground.backends import numpy_backend


def test_memory_is_used_again_only_when_no_view_of_any_library_is_left():
    shape = (numpy_backend.LARGE_BYTES // 8 // 4, 4)
    whole = numpy_backend.large_empty(shape)
    whole[...] = 1.0
    place = whole.__array_interface__["data"][0]
    row, tensor = whole[5:7].T, torch.from_numpy(whole[9])
    del whole
    other = numpy_backend.large_empty(shape)
    other[...] = 2.0
    assert (row == 1.0).all()
    assert bool((tensor == 1.0).all())
    del row, other
    assert numpy_backend.large_empty(shape).__array_interface__["data"][0] != place
    del tensor
    again = [numpy_backend.large_empty(shape) for _ in range(3)]
    assert place in [array.__array_interface__["data"][0] for array in again]
    assert all(array.flags.carray for array in again)


def test_little_memory_is_kept():
    tracemalloc.start()
    try:
        for more in range(12):
            arrays = [numpy_backend.large_empty((numpy_backend.LARGE_BYTES // 8 + more,)) for _ in range(5)]
            del arrays
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert numpy_backend.LARGE_BYTES < kept < 13 * numpy_backend.LARGE_BYTES
