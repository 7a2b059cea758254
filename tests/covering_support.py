"""Covering arrays: few cases in which every pair, or every triple, of levels of some factors occurs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product

import numpy as np

Factors = Mapping[str, Sequence[str]]
Case = dict[str, str]
"""A level of every factor; of some of them, in a partial case."""
TRIES = 4
"""Cases that are drawn for each one that is kept: the one that covers most."""


def groups_of_levels(factors: Factors, strength: int) -> Iterator[Case]:
    """Every combination of levels of ``strength`` different factors, as a partial case."""
    for names in combinations(factors, strength):
        for levels in product(*(factors[name] for name in names)):
            yield dict(zip(names, levels, strict=True))


def covering_cases(
    factors: Factors, allowed: Callable[[Case], bool], *, strength: int = 2, seed: int = 0
) -> list[Case]:
    """Cases that together hold every combination of levels of ``strength`` factors that is allowed.

    Each case begins with a combination that is still missing. The other factors follow in random order, each
    with the level that adds most that is missing. Of a few such cases the best one is kept.

    Args:
        factors: Levels by name of the factor; levels of one factor differ.
        allowed: Whether a case, which may be partial, can be played. What forbids a partial case must forbid
            every case that it is a part of.
        strength: 2 for pairs, 3 for triples.
        seed: Of the order of factors, and of the choice between equal levels.

    Returns:
        Complete cases, all of them allowed.

    Raises:
        ValueError: If a combination is allowed, and no complete case with it was found.
    """
    rng = np.random.default_rng(seed)
    places = {level: place for place, level in enumerate((f, level) for f in factors for level in factors[f])}
    missing = np.zeros((len(places),) * strength, dtype=np.bool_)
    wanted = []
    for group in groups_of_levels(factors, strength):
        if allowed(group):
            at = [places[item] for item in group.items()]
            wanted.append((group, tuple(at)))
            _set(missing, at, value=True)
    cases: list[Case] = []
    for group, at in wanted:
        while missing[at]:
            drawn = [_completed(dict(group), factors, places, missing, allowed, rng) for _ in range(TRIES)]
            found = [case for case in drawn if case is not None]
            if not found:
                raise ValueError(f"no case that can be played holds {group}: loosen what is allowed")
            best = max(found, key=lambda case: _count(case, places, missing))
            cases.append(best)
            _set(missing, [places[item] for item in best.items()], value=False)
    return cases


def _completed(
    case: Case,
    factors: Factors,
    places: Mapping[tuple[str, str], int],
    missing: np.ndarray,
    allowed: Callable[[Case], bool],
    rng: np.random.Generator,
) -> Case | None:
    """A partial case with levels of all factors; ``None`` where some factor has none that is allowed."""
    free = [name for name in factors if name not in case]
    for name in rng.permutation(free).tolist():
        levels = [level for level in factors[name] if allowed({**case, name: level})]
        if not levels:
            return None
        chosen = [places[item] for item in case.items()]
        own = [places[name, level] for level in levels]
        added = missing[np.ix_(own, *[chosen] * (missing.ndim - 1))]
        gains = added.reshape(len(levels), -1).sum(axis=1)
        case[name] = levels[rng.choice(np.flatnonzero(gains == gains.max()))]
    return {name: case[name] for name in factors}


def _count(case: Case, places: Mapping[tuple[str, str], int], missing: np.ndarray) -> int:
    """Missing combinations that a case would add, each counted once for every order of its factors."""
    at = [places[item] for item in case.items()]
    return int(missing[np.ix_(*[at] * missing.ndim)].sum())


def _set(missing: np.ndarray, at: Sequence[int], *, value: bool) -> None:
    """Mark the combinations of some levels, in every order."""
    for axes in np.ndindex(*[len(at)] * missing.ndim) if value else ():
        if len(set(axes)) == missing.ndim:
            missing[tuple(at[axis] for axis in axes)] = True
    if not value:
        missing[np.ix_(*[list(at)] * missing.ndim)] = False
