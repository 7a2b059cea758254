"""Beam search: whole sequences from a model that scores the next token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from collapipe_env.models.decoder import CachedDecoding
from collapipe_env.models.tokenization import BEGIN, END, PADDING, UNKNOWN

NEVER_WRITTEN = (PADDING, UNKNOWN, BEGIN)
"""Ids that stand for no text; no search may choose them."""

LENGTH_EXPONENT = 0.6
"""Exponent alpha of the length penalty (Wu et al., 2016, arXiv 1609.08144), as in Vaswani et al. (2017)."""


def length_penalty(length: int) -> float:
    """Return the divisor of the log-probability of a sequence, whose length includes the end."""
    return float(((5 + length) / 6) ** LENGTH_EXPONENT)


def beam_search(stepper: CachedDecoding, first: Tensor, beams: int, max_length: int) -> Tensor:
    """Keep the ``beams`` likeliest sequences at every step and return the best one of each source.

    One beam is greedy: it takes the most likely token at every step.

    Sequences are compared by log-probability over :func:`length_penalty`. A sequence that ends counts as
    finished if it is among the ``beams`` best continuations of its step; the search of a source stops when
    ``beams`` have finished, or when no unfinished sequence can beat the best finished one. Sequences that
    reach ``max_length`` compete as they are.

    Args:
        stepper: A row for each source.
        first: The tokens that sequences begin with, shape (sources,).
        beams: Beams, at least 1.
        max_length: Most tokens to write, the end included; at least 1.

    Returns:
        Ids, shape (sources, max_length), without the first; padding follows the end token. A sequence that
        did not end has neither.
    """
    result = first.new_full((len(first), max_length), PADDING)
    sources = torch.arange(len(first), device=first.device)  # sources whose search continues
    stepper.select(sources.repeat_interleave(beams))
    tokens = first.repeat_interleave(beams)
    written = result.repeat_interleave(beams, dim=0).view(len(first), beams, max_length)
    # All beams of a source are equal at first, so only one of them may go on.
    totals = torch.full((len(first), beams), -math.inf, dtype=torch.float32, device=first.device)
    totals[:, 0] = 0.0
    best, finished = totals.new_full((len(first),), -math.inf), torch.zeros_like(sources)
    for t in range(max_length):
        scores = stepper.step(tokens).float().log_softmax(dim=-1)
        scores[:, NEVER_WRITTEN] = -math.inf
        vocabulary = scores.shape[-1]
        continued = (totals[:, :, None] + scores.view(len(sources), beams, -1)).flatten(start_dim=1)
        # Each beam has one way to end, so among 2 * beams candidates enough continue.
        candidates, places = continued.topk(2 * beams)
        parents, tokens = places // vocabulary, places % vocabulary
        grown = written.gather(1, parents[:, :, None].expand(-1, -1, max_length))
        grown[:, :, t] = tokens
        ends = (tokens == END) & (candidates > -math.inf)

        ended = candidates[:, :beams].masked_fill(~ends[:, :beams], -math.inf)
        _improve(best, result, sources, ended / length_penalty(t + 1), grown)
        finished = finished + ends[:, :beams].sum(dim=1)

        totals, chosen = candidates.masked_fill(ends, -math.inf).topk(beams)
        written = grown.gather(1, chosen[:, :, None].expand(-1, -1, max_length))
        # A log-probability only falls, and no penalty is larger than that of the greatest length.
        reachable = totals / length_penalty(max_length)
        if t + 1 == max_length:
            _improve(best, result, sources, reachable, written)
            break
        going = ((finished < beams) & (reachable[:, 0] > best)).nonzero()[:, 0]
        if len(going) == 0:
            break
        parents, tokens = parents.gather(1, chosen)[going], tokens.gather(1, chosen)[going].flatten()
        if beams > 1 or len(going) < len(sources):  # a single beam keeps its order
            stepper.select((going[:, None] * beams + parents).flatten())
        sources, totals, written = sources[going], totals[going], written[going]
        best, finished = best[going], finished[going]
    return result


def _improve(best: Tensor, result: Tensor, sources: Tensor, scores: Tensor, sequences: Tensor) -> None:
    """Replace best scores and sequences of the sources for which ``scores`` (sources, n) has a better one."""
    top, column = scores.max(dim=1)
    better = (top > best).nonzero()[:, 0]
    best[better] = top[better]
    result[sources[better]] = sequences[better, column[better]]
