"""Points that no other point beats in both of two quantities."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the Pareto front where both quantities are to be small, by the first one.

    A point belongs to it unless another one is no larger in both and smaller in one.

    Args:
        points: Pairs of finite numbers.
    """
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if not front or points[index][1] < points[front[-1]][1] or points[index] == points[front[-1]]:
            front.append(index)
    return front
