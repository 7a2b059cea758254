"""Points that no other point beats in both of two quantities."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the Pareto front, in order of the first quantity; smaller is better in both.

    A point belongs to the front unless another point is no larger in both quantities and smaller in one.

    Args:
        points: Pairs of finite numbers.
    """
    front: list[int] = []
    for index in sorted(range(len(points)), key=lambda i: points[i]):
        if not front or points[index][1] < points[front[-1]][1] or points[index] == points[front[-1]]:
            front.append(index)
    return front
