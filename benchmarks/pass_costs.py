"""Law of pass costs, ``alpha + beta b``, fitted to the real learner's own passes on this machine.

A segment of encoder blocks runs forward and backward over micro-batches of several sizes ``b``, taking
turns. The fitted ``alpha`` is the overhead of a pass, ``beta`` the time of a sample; their ratio, in samples,
does not depend on the processor's speed and is compared with that of the scenario's prices. The law then
predicts the time of a whole mini-batch in ``M`` micro-batches, which is also measured. Run::

    python benchmarks/pass_costs.py
    python benchmarks/pass_costs.py --scenario small --slices 30
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import torch
from measuring import BenchmarkOptions, command, store
from pydantic import Field
from torch import Tensor

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.models.cluster_model import ClusterModel, additive_mask
from collapipe_env.physics.delay import stage_time
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.tasks.base import trained_architecture

WHAT = "the law of pass costs against the real learner's passes on this machine"


class Options(BenchmarkOptions):
    """Time of a pass as overhead plus time per sample."""

    scenario: str = "medium"
    """Scenario whose blocks run."""
    blocks: Annotated[int, Field(ge=1, le=12)] = 3
    """Blocks of the segment, 1 to 12."""
    slices: Annotated[int, Field(ge=3)] = 15
    """Measurements of each size, at least 3."""


class Segment:
    """A segment of blocks, its input and its mask, for mini-batches of the scenario's size."""

    def __init__(self, scenario: Scenario, blocks: int) -> None:
        w = scenario.workload
        generator = torch.Generator().manual_seed(0)
        model = ClusterModel(
            trained_architecture(scenario.with_overrides({"learning.proxy": None})), generator
        )
        self._blocks = list(model.blocks)[:blocks]
        self.batch_size = w.batch_size
        self._x = torch.randn(w.batch_size, w.sequence_length, w.width, generator=generator)
        self._mask = additive_mask(torch.ones(w.batch_size, w.sequence_length, dtype=torch.int64))

    def passes(self, samples: int) -> tuple[float, float]:
        """Seconds of one forward and one backward pass over some samples."""
        x = self._x[:samples].detach().requires_grad_()
        start = time.perf_counter()
        out: Tensor = x
        for block in self._blocks:
            out = block(out, self._mask[:samples])
        middle = time.perf_counter()
        torch.autograd.backward(out, torch.ones_like(out))
        return middle - start, time.perf_counter() - middle


def measured(measure: Callable[[int], tuple[float, ...]], sizes: list[int], slices: int) -> FloatArray:
    """Medians over slices in which all sizes take turns (sizes, figures) [s]."""
    for size in sizes:
        measure(size)  # memory is touched for the first time
    found = np.array([[measure(size) for size in sizes] for _ in range(slices)])
    medians: FloatArray = np.median(found, axis=0)
    return medians


def fitted(sizes: list[int], seconds: FloatArray) -> tuple[float, float]:
    """Alpha [s] and beta [s] of least relative error, neither below 0."""
    from scipy.optimize import nnls

    b = np.array(sizes, dtype=np.float64)
    law = np.stack((np.ones_like(b), b), axis=-1) / seconds[:, None]
    (alpha, beta), _ = nnls(law, np.ones_like(b))
    return float(alpha), float(beta)


def compare(options: Options) -> None:
    """Measure, fit, compare, print and store."""
    torch.set_num_threads(1)
    scenario = load_scenario(options.scenario)
    segment = Segment(scenario, options.blocks)
    B = segment.batch_size
    sizes = [size for size in range(1, B + 1) if B % size == 0]
    seconds = measured(segment.passes, sizes, options.slices) / options.blocks
    law = {way: fitted(sizes, seconds[:, i]) for i, way in enumerate(("forward", "backward"))}
    parameters = system_parameters(scenario)
    clock = 1e9
    speed = clock * scenario.devices.profiles[0].flops_per_cycle
    priced_alpha = cycles_time(1.0, parameters.overheads.block_cycles, clock)
    priced_beta = stage_time(1.0, 1.0, parameters.costs.block_forward_flops, speed)
    print(f"one block of {scenario.name}, one thread; sizes in samples, times in ms")
    print(f"{'b':>5s} {'forward':>9s} {'law':>9s} {'backward':>9s} {'law':>9s}")
    for size, (forward, backward) in zip(sizes, seconds, strict=True):
        laws = [law[way][0] + law[way][1] * size for way in ("forward", "backward")]
        print(
            f"{size:5d} {1e3 * forward:9.3f} {1e3 * laws[0]:9.3f} {1e3 * backward:9.3f} {1e3 * laws[1]:9.3f}"
        )
    rows = {}
    for way, (alpha, beta) in law.items():
        rows[way] = {"alpha_s": alpha, "beta_s": beta, "samples": alpha / beta}
        ratio = f"alpha is {alpha / beta:.2f} samples"
        print(f"{way}: alpha {1e3 * alpha:.3f} ms, beta {1e3 * beta:.3f} ms a sample: {ratio}")
    print(
        f"priced, at 1 GHz: alpha {1e3 * priced_alpha:.3f} ms, beta {1e3 * priced_beta:.3f} ms a sample: "
        f"alpha is {priced_alpha / priced_beta:.2f} samples, forward and backward alike"
    )

    def whole(size: int) -> tuple[float]:
        return (sum(sum(segment.passes(size)) for _ in range(B // size)),)

    together = measured(whole, sizes, max(3, options.slices // 3))[:, 0] / options.blocks
    print("a whole mini-batch in M micro-batches, over the time in one")
    comparison = []
    for size, found in zip(sizes, together, strict=True):
        M = B // size
        expected = sum(alpha * M + beta * B for alpha, beta in law.values())
        comparison.append({"micro_batches": M, "measured_s": float(found), "law_s": expected})
        print(
            f"{M:5d} measured {found / together[-1]:6.3f}  law {expected / found:6.3f} of the measured time"
        )
    store(options, WHAT, law=rows, mini_batch=comparison)


main = command(Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
