"""Size of a model update on the air; the learner sends messages of exactly these sizes ([X]).

An update is the difference between a cluster's model and the model that the round began with. It is sent in
*parts*: every encoder block is one (the devices that hold a segment compress their own blocks), the embedding
is another. A message about a part of ``size`` numbers carries ``entries`` numbers of ``weight_bits`` each:

- 32 bits: single precision as it is
- 16 bits: half precision, after a shift of the whole part by a power of two. The shift is one signed byte per
  part, which is neglected like all control messages.
- 8 bits: integers in [-127, 127] with one single-precision scale for every ``SCALED_TOGETHER`` of them. The
  scales are priced.

If a message has fewer entries than the part has numbers, each entry needs an index of ``ceil(log2(size))``
bits. If that sparse message would be longer than the dense one, all numbers are sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Compression = Literal["none", "top-k", "lora"]

SCALED_TOGETHER = 1024
"""Eight-bit integers that share a scale, which adds 0.4 % to the message."""

SCALE_BITS = 32


@dataclass(frozen=True)
class UpdateFormat:
    """Format in which updates of the model travel.

    Attributes:
        weight_bits: Bits of a number, 8, 16 or 32.
        compression: ``"none"`` sends all of an update, ``"top-k"`` the largest entries of each part, and
            ``"lora"`` trains and sends low-rank adapters of the blocks only.
        top_k_share: Share of a part's entries that top-k sends, in (0, 1].
        lora_alpha: Scale of the adapters, whose product is multiplied by ``alpha / rank``.
    """

    weight_bits: int = 32
    compression: Compression = "none"
    top_k_share: float = 0.1
    lora_rank: int = 8
    lora_alpha: float = 16.0

    @property
    def lossless(self) -> bool:
        """Whether every number arrives as it was."""
        return self.weight_bits == 32 and self.compression != "top-k"

    def entries(self, size: int) -> int:
        """Entries of a part that one sender picks, all ``size`` where fewer would not shorten the message."""
        if self.compression != "top-k":
            return size
        # Rounded first: 0.07 * 100 is a little more than 7 in binary. Even the smallest share is an entry.
        entries = max(1, math.ceil(round(self.top_k_share * size, 6)))
        return worthwhile_entries(size, entries, self.weight_bits)

    def upload_bits(self, size: int) -> int:
        """Bits of one sender's message about a part of ``size`` numbers."""
        return message_bits(size, self.entries(size), self.weight_bits)

    def broadcast_bits(self, size: int, senders: int) -> int:
        """Bits of the message about a part to which ``senders`` have contributed, none an entry in common."""
        entries = worthwhile_entries(size, senders * self.entries(size), self.weight_bits)
        return message_bits(size, entries, self.weight_bits)


def index_bits(size: int) -> int:
    """Bits of an index into the ``size`` places of a part, ``ceil(log2(size))``."""
    return (size - 1).bit_length()


def message_bits(size: int, entries: int, weight_bits: int) -> int:
    """Bits of a message with ``entries`` of a part's ``size`` numbers.

    Args:
        entries: Number of entries sent; all of them need no indices.
        weight_bits: Bits of a number, 8, 16 or 32.
    """
    bits = entries * weight_bits
    if weight_bits == 8:
        bits += SCALE_BITS * -(-entries // SCALED_TOGETHER)
    return bits + (entries * index_bits(size) if entries < size else 0)


def worthwhile_entries(size: int, entries: int, weight_bits: int) -> int:
    """Entries to send: ``entries`` if that makes the message shorter, otherwise all ``size``."""
    dense = message_bits(size, size, weight_bits)
    return entries if entries < size and message_bits(size, entries, weight_bits) < dense else size
