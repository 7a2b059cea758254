"""A quantity that schedulers see, declared once: the observations scale it or take its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collapipe_env.ground.arrays import Array
from collapipe_env.simulator.state import SystemState


@dataclass(frozen=True)
class Feature:
    """A quantity that schedulers see.

    The flat observation shows ``low`` as :attr:`least` and ``high`` as 1, evenly in between. The graph
    observation shows it in an array only if that is named.

    Attributes:
        name: Its name in the flat observation.
        axes: ``N K``, ``N`` or nothing: its shape in one environment.
        unit: Unit of the quantity.
        low: See above; a smaller quantity is shown as this one, except for :attr:`beyond`.
        high: See above; a larger quantity is shown as this one, except for :attr:`beyond`.
        about: Meaning.
        value: Name of the field of states that holds the quantity, or a function that returns it from states
            (E, ...), at the top of its file, so that environments can be pickled; of shape (E, *axes) after
            the cut.
        cut: Index of the quantity in a larger array, if that is the value.
        least: 0, or -1 for a quantity that is shown in [-1, 1].
        beyond: How far the numbers go below ``least`` and above 1.
        decibel: Whether the value is a ratio, and the quantity its size in dB.
        masked: Whether absent devices show 0; for ``N K``.
        array: Array of the graph observation that holds the quantity, after the features of the same array
            before; empty for none. It is called there as here, without ``device_`` or ``cluster_``.
        log1p: Whether the graph shows the logarithm of 1 plus the quantity.
    """

    name: str
    axes: str
    unit: str
    low: float
    high: float
    about: str
    value: str | Callable[[SystemState], Array]
    least: float = 0.0
    beyond: tuple[float, float] = (0.0, 0.0)
    decibel: bool = False
    masked: bool = True
    cut: tuple[Any, ...] | None = None
    array: str = ""
    log1p: bool = False

    def read(self, state: SystemState) -> Array:
        """Return the quantity in states (E, ...), of shape (E, *axes)."""
        found = getattr(state, self.value) if isinstance(self.value, str) else self.value(state)
        return found[self.cut] if self.cut else found

    @property
    def scale(self) -> float:
        """Factor from numbers of the flat observation to the quantity, before :attr:`offset` is added."""
        return (self.high - self.low) / (1.0 - self.least)

    @property
    def offset(self) -> float:
        """Quantity that the flat observation shows as 0."""
        return self.high - self.scale

    @property
    def description(self) -> str:
        """Meaning, with the quantities that the flat observation shows as its least number and as 1."""
        unit = "" if self.unit == "1" else f" {self.unit}"
        if not unit and (self.low, self.high, self.least) == (0.0, 1.0, 0.0):
            return self.about
        return f"{self.about}; {self.least:g} for {self.low:g}{unit}, 1 for {self.high:g}{unit}"
