"""Continuations of a text: the likeliest token every time, or one drawn from the likeliest few."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

TOP_P = 0.9
"""Total probability of the tokens from which one is drawn."""

Choice = Callable[[Tensor], Tensor]
"""Chooses an id for each row of scores (rows, V_out)."""

NOT_FINITE = "(nothing: the model has diverged, its scores are not finite)"
"""Text in place of a continuation that a model cannot write."""


class ScoresNotFiniteError(ValueError):
    """Scores from which no token can be chosen."""


def likeliest(scores: Tensor) -> Tensor:
    """Return the id with the highest score of each row."""
    return scores.argmax(dim=-1)


def nucleus(probabilities: Tensor, p: float) -> Tensor:
    """Return the distribution over the fewest likeliest tokens that together have a probability of ``p``.

    Top-p or nucleus sampling (Holtzman et al., 2020, arXiv 1904.09751).

    Args:
        probabilities: Shape (..., V_out), rows summing to 1.
        p: In (0, 1].

    Returns:
        The probabilities of the kept tokens over their sum, 0 elsewhere.
    """
    ordered, places = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(dim=-1) - ordered
    # The first is kept whatever the rounding.
    left_out = before >= p
    left_out[..., 0] = False
    kept = torch.zeros_like(probabilities).scatter(-1, places, ordered.masked_fill(left_out, 0.0))
    return kept / kept.sum(dim=-1, keepdim=True)


def drawn(p: float, generator: Generator) -> Choice:
    """Return a choice that draws from the :func:`nucleus` of probability ``p``, by a generator on the CPU."""

    def choose(scores: Tensor) -> Tensor:
        probabilities = nucleus(scores.double().softmax(dim=-1), p).cpu()
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(scores.device)

    return choose


def continued(
    score: Callable[[Tensor], Tensor],
    prompts: Tensor,
    length: int,
    window: int,
    choose: Choice,
    unwritten: Sequence[int] = (),
) -> Tensor:
    """Continue texts, token by token.

    Args:
        score: Maps ids (rows, up to ``window``) to scores of the next token, (rows, V_out).
        prompts: Ids, shape (rows, n), at least one column.
        length: Tokens to write.
        window: Most tokens that the model reads; older ones are dropped.
        unwritten: Ids that are never chosen.

    Returns:
        Ids of the written tokens, shape (rows, length).

    Raises:
        ScoresNotFiniteError: If a score is infinite or not a number.
    """
    text, refused = prompts, torch.tensor(list(unwritten), dtype=torch.int64, device=prompts.device)
    for _ in range(length):
        scores = score(text[:, -window:]).clone()
        if not scores.isfinite().all():
            raise ScoresNotFiniteError("the model's scores are not finite")
        scores[:, refused] = -torch.inf
        text = torch.cat((text, choose(scores)[:, None]), dim=1)
    return text[:, prompts.shape[1] :]
