"""Compression of model updates: quantisation, and top-k entries with error feedback.

The messages have exactly the sizes that :mod:`collapipe_env.physics.payload` prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from collapipe_env.ground.arrays import BoolArray
from collapipe_env.physics.payload import SCALED_TOGETHER, UpdateFormat, worthwhile_entries

LARGEST_INTEGER = 127
HALF_EXPONENT = 15
"""Numbers below 2^15 are finite in half precision, whose smallest step is 2^-24."""


@dataclass(frozen=True)
class Message:
    """One part of an update as it travels, from several senders at once.

    Attributes:
        size: Numbers of the part.
        values: Numbers as they are sent, shape (senders, entries), of type float32, float16 or int8.
        scale: Factors of the values, broadcastable in groups of :data:`SCALED_TOGETHER`,
            shape (senders, groups); a power of two in half precision.
        indices: Places of the entries in the part, shape (senders, entries); None if all are sent.
    """

    size: int
    values: Tensor
    scale: Tensor
    indices: Tensor | None

    def decode(self) -> Tensor:
        """Return the numbers as received, shape (senders, size); zero where nothing was sent."""
        values = self.values.to(self.scale)
        if self.values.dtype == torch.int8:
            groups = self.scale.repeat_interleave(SCALED_TOGETHER, dim=-1)
            values *= groups[:, : values.shape[-1]]
        else:
            values *= self.scale
        if self.indices is None:
            return values
        return values.new_zeros(len(values), self.size).scatter_(-1, self.indices, values)


@torch.no_grad()
def encode(part: Tensor, weight_bits: int, generator: Generator, indices: Tensor | None = None) -> Message:
    """Quantise a part of an update.

    Args:
        part: The numbers, shape (senders, size).
        weight_bits: 32 for single precision; 16 for half precision after a shift by a power of two, so that
            small updates do not vanish; 8 for integers that are rounded up or down at random such that the
            expectation is the number itself (QSGD: Alistarh et al., 2017, arXiv 1610.02132).
        generator: Draws the rounding; read at 8 bits only.
        indices: Places of the entries to send, shape (senders, entries); None for all.
    """
    chosen = part if indices is None else part.gather(-1, indices)
    if weight_bits == 32:
        return Message(part.shape[-1], chosen.float(), part.new_ones(()), indices)
    if weight_bits == 16:
        largest = chosen.abs().amax(dim=-1, keepdim=True)
        # The shift fits in a byte, and the power of two is a normal number in single precision.
        shift = (torch.frexp(largest).exponent - HALF_EXPONENT).clamp(-126, 127)
        scale = torch.ldexp(torch.ones_like(largest), shift)
        return Message(part.shape[-1], (chosen / scale).half(), scale, indices)
    senders, entries = chosen.shape
    groups = -(-entries // SCALED_TOGETHER)
    padded = functional.pad(chosen, (0, groups * SCALED_TOGETHER - entries))
    padded = padded.view(senders, groups, SCALED_TOGETHER)
    scale = (padded.abs().amax(dim=-1) / LARGEST_INTEGER).float().to(part)
    steps = torch.where(scale[..., None] > 0, padded / scale[..., None], 0.0)
    up = torch.rand(steps.shape, generator=generator, device=part.device, dtype=part.dtype)
    # Apart from rounding, the largest number is 127 steps.
    integers = (steps + up).floor().clamp(-LARGEST_INTEGER, LARGEST_INTEGER).to(torch.int8)
    return Message(part.shape[-1], integers.view(senders, -1)[:, :entries], scale, indices)


class UpdateCompressor:
    """Encoder and decoder of a run's updates, part by part.

    Under top-k every cluster remembers what it has not sent yet (omitted entries and rounding errors) and
    adds it to its next update (error feedback: Stich et al., 2018, arXiv 1809.07599). The server broadcasts
    the union of the entries, so it omits nothing.
    """

    def __init__(
        self,
        update_format: UpdateFormat,
        parts: Sequence[Sequence[slice]],
        clusters: int,
        like: Tensor,
        generator: Generator,
    ) -> None:
        """Begin with empty memories.

        Args:
            parts: Places of each part in an update; empty for a part that is not trained.
            clusters: N.
            like: One update, shape (P,).
            generator: Draws stochastic rounding.
        """
        self._format, self._parts, self._generator = update_format, parts, generator
        self._feedback = update_format.compression == "top-k"
        self.residuals = like.new_zeros(clusters if self._feedback else 0, len(like))
        """Part of each cluster's updates that it has not sent yet, shape (N, P); (0, P) without top-k."""

    @torch.no_grad()
    def upload(self, updates: Tensor, sent: BoolArray) -> None:
        """Replace the clusters' updates by those that the server receives.

        Args:
            updates: One update a row, shape (N, P).
            sent: True for the parts that a cluster sends, shape (N, parts). Others stay as they are, and so
                do their memories.
        """
        if self._format.lossless:
            return
        for places, senders in zip(self._parts, sent.T, strict=True):
            rows = np.flatnonzero(senders).tolist()
            if not rows or not places:
                continue
            part = _gather(updates, rows, places)
            if self._feedback:
                part += _gather(self.residuals, rows, places)
            size = part.shape[-1]
            entries, indices = self._format.entries(size), None
            if entries < size:
                indices = part.abs().topk(entries, dim=-1).indices
            arrived = encode(part, self._format.weight_bits, self._generator, indices).decode().to(part)
            _scatter(updates, rows, places, arrived)
            if self._feedback:
                _scatter(self.residuals, rows, places, part - arrived)

    @torch.no_grad()
    def broadcast(self, update: Tensor, sent: BoolArray) -> None:
        """Replace the mean update by the one that clusters receive; all parties apply it, the server too.

        Args:
            update: The mean, shape (P,).
            sent: True for the parts that are broadcast, shape (parts,). Others stay as they are.
        """
        if self._format.lossless:
            return
        bits = self._format.weight_bits
        for places, is_sent in zip(self._parts, sent.tolist(), strict=True):
            part = _gather(update[None], [0], places) if is_sent and places else update[:0]
            if not part.count_nonzero():
                continue  # nothing has changed, so nothing is sent
            size, indices = part.shape[-1], None
            if self._feedback:
                changed = part.nonzero()[:, 1]
                if worthwhile_entries(size, len(changed), bits) < size:
                    indices = changed[None]
            arrived = encode(part, bits, self._generator, indices).decode().to(part)
            _scatter(update[None], [0], places, arrived)


def _gather(rows: Tensor, chosen: list[int], places: Sequence[slice]) -> Tensor:
    # Indexing all rows by a list would copy them once more.
    taken = rows if len(chosen) == len(rows) else rows[chosen]
    return torch.cat([taken[:, place] for place in places], dim=-1)


def _scatter(rows: Tensor, chosen: list[int], places: Sequence[slice], values: Tensor) -> None:
    everyone = len(chosen) == len(rows)
    sizes = [place.stop - place.start for place in places]
    for place, part in zip(places, torch.split(values, sizes, dim=-1), strict=True):
        rows[slice(None) if everyone else chosen, place] = part
