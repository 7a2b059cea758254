"""Does it pay to train all clusters of all environments at once? A local step, looped and stacked.

The learner trains one cluster's model after another. The alternative is one model whose every parameter has a
leading axis of clusters: a linear map becomes a batched product, and one backward pass serves all. Both are
measured here in one thread at the same parameters and samples, without optimiser and averaging, which are
operations on flat vectors in either form. The stacked form covers the default configuration (style
``pre-ln``, sentence classification, no dropout)::

    python benchmarks/batched_learner.py
    python benchmarks/batched_learner.py --scenarios small --environments 1 4 --samples 1 64

On a busy machine of two cores the stacked form took 1.05 to 1.28 times as long as the loop at the 64
samples of the shipped scenarios, for 2 to 64 clusters: the time goes into arithmetic, and one model's
activations stay in the cache. Hence the learner loops. With 1 to 8 samples a cluster, where the calls
themselves cost most, the stacked form was 1.1 to 6 times as fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from measuring import (
    RESULTS,
    Contestant,
    Figure,
    check_slices,
    figure_table,
    ratio_figure,
    take_turns,
    write_figures,
)
from torch import Tensor
from torch.func import stack_module_state
from torch.nn import functional

from collapipe_env.models.model import ClusterModel, additive_mask
from collapipe_env.models.tokenization import PADDING
from collapipe_env.scenario import load_scenario, scenario_names
from collapipe_env.tasks import get_task
from collapipe_env.tasks.base import task_spec, trained_architecture

WHAT = "time of a cluster's forward and backward pass in one thread; above 1 the stacked form is slower"
SHORTEST = 4
"""Real tokens of the shortest sentence."""


class LoopedClusters:
    """Models of their own, one after the other.

    Attributes:
        models: The clusters' models.
        head: The server's head, common to all.
        tokens: Token ids (G, S, q).
        targets: Classes (G, S).
    """

    def __init__(self, scenario_name: str, clusters: int, samples: int, seed: int = 0) -> None:
        """Draw models and samples.

        Args:
            scenario_name: A shipped scenario, for its architecture.
            clusters: G, clusters of all environments together.
            samples: S, samples of each.
            seed: Of everything that is drawn.
        """
        scenario = load_scenario(scenario_name)
        architecture = trained_architecture(scenario)
        self._task = get_task("classification")
        generator = torch.Generator().manual_seed(seed)
        self.models = [ClusterModel(architecture, generator) for _ in range(clusters)]
        self.head = self._task.build_head(task_spec(scenario), generator)
        q = architecture.sequence_length
        self.tokens = torch.randint(
            PADDING + 1, architecture.vocabulary, (clusters, samples, q), generator=generator
        )
        lengths = torch.randint(SHORTEST, q + 1, (clusters, samples, 1), generator=generator)
        self.tokens[torch.arange(q) >= lengths] = PADDING
        self.targets = torch.randint(scenario.workload.outputs, (clusters, samples), generator=generator)

    def step(self) -> Tensor:
        """Accumulate every cluster's gradient; the losses (G,)."""
        losses = []
        for model, tokens, targets in zip(self.models, self.tokens, self.targets, strict=True):
            model.zero_grad(set_to_none=False)
            loss = self._task.loss(self.head(model(tokens), tokens != PADDING, targets), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses)


class StackedClusters:
    """The same models as one, with a leading axis G of clusters in every parameter.

    Attributes:
        parameters: By the name in a single model, shape (G, ...).
    """

    def __init__(self, looped: LoopedClusters) -> None:
        """Copy models and samples."""
        stacked, _ = stack_module_state([*looped.models])
        self.parameters = {name: value.detach().clone().requires_grad_() for name, value in stacked.items()}
        self._architecture = looped.models[0].architecture
        self._positions = looped.models[0].embedding.positions
        self._head, self._tokens, self._targets = looped.head, looped.tokens, looped.targets

    def step(self) -> Tensor:
        """Accumulate every cluster's gradient; the losses (G,)."""
        for parameter in self.parameters.values():
            parameter.grad = None
        clusters, samples, q = self._tokens.shape
        hidden = self._encode().view(clusters * samples, q, -1)
        together = self._tokens.view(clusters * samples, q)
        scores = self._head(hidden, together != PADDING, None)
        each = functional.cross_entropy(scores, self._targets.view(-1), reduction="none")
        losses = each.view(clusters, samples).mean(dim=1)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def _encode(self) -> Tensor:
        """Activations (G, S q, d) of the last block."""
        a = self._architecture
        clusters, samples, q = self._tokens.shape
        table = self.parameters["embedding.weight"]
        rows = self._tokens + a.vocabulary * torch.arange(clusters)[:, None, None]
        embedded = functional.embedding(rows, table.view(-1, a.width)) + self._positions[:q]
        x = embedded.view(clusters, samples * q, a.width)
        mask = additive_mask(self._tokens.view(clusters * samples, q))
        for block in range(a.blocks):
            by_head = self._linear(block, "qkv", self._norm(block, "norm1", x))
            by_head = by_head.view(clusters * samples, q, 3, a.heads, a.width // a.heads)
            query, key, value = by_head.permute(2, 0, 3, 1, 4).unbind(0)
            h = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            x = x + self._linear(block, "out", h.transpose(1, 2).reshape(x.shape))
            up = functional.gelu(self._linear(block, "up", self._norm(block, "norm2", x)))
            x = x + self._linear(block, "down", up)
        return x

    def _linear(self, block: int, name: str, x: Tensor) -> Tensor:
        weight, bias = (self.parameters[f"blocks.{block}.{name}_{part}"] for part in ("weight", "bias"))
        return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))

    def _norm(self, block: int, name: str, x: Tensor) -> Tensor:
        gain, bias = (self.parameters[f"blocks.{block}.{name}_{part}"] for part in ("gain", "bias"))
        return torch.addcmul(bias[:, None], functional.layer_norm(x, x.shape[-1:]), gain[:, None])


def figures(
    scenarios: Sequence[str] = ("small", "medium"),
    environments: Sequence[int] = (1, 4, 16),
    samples: Sequence[int] = (64,),
    slice_seconds: float = 0.5,
    repeats: int = 5,
) -> list[Figure]:
    """Measure both forms in turns.

    Args:
        scenarios: Shipped scenarios, for architecture and clusters.
        environments: Numbers of environments whose clusters are trained at once, >= 1 each.
        samples: Samples of a cluster's batch, >= 1 each.
        slice_seconds: Length of a slice [s].
        repeats: Slices of each, >= 1.

    Returns:
        The stacked form's time over the loop's in each case; the note has the loop's time.
    """
    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in scenarios:
            for count in environments:
                clusters = count * load_scenario(name).cluster.clusters
                for size in samples:
                    looped = LoopedClusters(name, clusters, size)
                    stacked = StackedClusters(looped)
                    row = f"{name}, {count} environments of {clusters // count} clusters, {size} samples"
                    pair = (
                        Contestant("loop", clusters, partial(_repeat, looped)),
                        Contestant("stacked", clusters, partial(_repeat, stacked)),
                    )
                    times = take_turns(pair, slice_seconds, repeats)
                    figure = ratio_figure(row, times["stacked"], times["loop"])
                    note = f"the loop takes {1e3 * times['loop'].median:.1f} ms a cluster"
                    found.append(replace(figure, note=note))
    finally:
        torch.set_num_threads(threads)
    return found


def _repeat(form: LoopedClusters | StackedClusters, calls: int) -> None:
    for _ in range(calls):
        form.step()


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = scenario_names()
    parser.add_argument("--scenarios", nargs="+", choices=known, default=["small", "medium"], help="which")
    parser.add_argument(
        "--environments", nargs="+", type=int, default=[1, 4, 16], metavar="E", help="how many"
    )
    parser.add_argument(
        "--samples", nargs="+", type=int, default=[64], metavar="S", help="in a cluster's batch"
    )
    parser.add_argument("--slice-seconds", type=float, default=0.5, metavar="T", help="length of a slice")
    parser.add_argument("--repeats", type=int, default=5, metavar="R", help="slices of each form")
    default = RESULTS / "batched_learner.json"
    parser.add_argument("--output", type=Path, default=default, metavar="FILE", help="JSON file to write")
    options = parser.parse_args(arguments)
    for flag, values in (("--environments", options.environments), ("--samples", options.samples)):
        if any(value < 1 for value in values):
            parser.error(f"{flag}: {values} must be at least 1 each")
    check_slices(parser, options)
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table and store it."""
    options = parse_arguments(arguments)
    used = {name: value for name, value in vars(options).items() if name != "output"}
    found = figures(**used)
    print(figure_table(found))
    write_figures(options.output, WHAT, found, used)
    print(f"written to {options.output}")


if __name__ == "__main__":
    main()
