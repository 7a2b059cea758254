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
from scipy.optimize import nnls

from collapipe_env.ground.arrays import FloatArray
from collapipe_env.models.cluster_model import ClusterModel, additive_mask
from collapipe_env.physics.delay import stage_time
from collapipe_env.physics.overheads import cycles_time
from collapipe_env.scenario import Scenario, load_scenario
from collapipe_env.simulator.build import system_parameters
from collapipe_env.tasks.base import trained_architecture

CLOCK_HZ = 1e9
"""Clock for which the prices are shown."""


class Options(BenchmarkOptions):
    """Time of a pass as overhead plus time per sample."""

    scenario: str = "medium"
    """Scenario whose blocks run."""
    blocks: Annotated[int, Field(ge=1, le=12)] = 3
    """Blocks of the segment, 1 to 12."""
    slices: Annotated[int, Field(ge=3)] = 15
    """Measurements of each size, at least 3."""


def segment_passes(scenario: Scenario, blocks: int) -> Callable[[int], tuple[float, float]]:
    """A function that runs a segment over some samples, and returns seconds forward and backward."""
    w, generator = scenario.workload, torch.Generator().manual_seed(0)
    architecture = trained_architecture(scenario.with_overrides({"learning.proxy": None}))
    segment = list(ClusterModel(architecture, generator).blocks)[:blocks]
    inputs = torch.randn(w.batch_size, w.sequence_length, w.width, generator=generator)
    mask = additive_mask(torch.ones(w.batch_size, w.sequence_length, dtype=torch.int64))

    def passes(samples: int) -> tuple[float, float]:
        out = inputs[:samples].detach().requires_grad_()
        start = time.perf_counter()
        for block in segment:
            out = block(out, mask[:samples])
        middle = time.perf_counter()
        torch.autograd.backward(out, torch.ones_like(out))
        return middle - start, time.perf_counter() - middle

    return passes


def measured(measure: Callable[[int], tuple[float, ...]], sizes: list[int], slices: int) -> FloatArray:
    """Medians over slices in which all sizes take turns (sizes, figures) [s]."""
    for size in sizes:
        measure(size)  # memory is touched for the first time
    medians: FloatArray = np.median([[measure(size) for size in sizes] for _ in range(slices)], axis=0)
    return medians


def fitted(sizes: list[int], seconds: FloatArray) -> tuple[float, float]:
    """Alpha [s] and beta [s] of least relative error, neither below 0."""
    b = np.array(sizes, dtype=np.float64)
    law = np.stack((np.ones_like(b), b), axis=-1) / seconds[:, None]
    (alpha, beta), _ = nnls(law, np.ones_like(b))
    return float(alpha), float(beta)


def compare(options: Options) -> None:
    """Measure, fit, compare, print and store."""
    torch.set_num_threads(1)
    scenario, slices = load_scenario(options.scenario), options.slices
    B, passes = scenario.workload.batch_size, segment_passes(scenario, options.blocks)
    sizes = [size for size in range(1, B + 1) if B % size == 0]
    seconds = measured(passes, sizes, slices) / options.blocks
    law = {way: fitted(sizes, seconds[:, i]) for i, way in enumerate(("forward", "backward"))}
    print(f"one block of {scenario.name}, one thread; sizes in samples, times in ms")
    print(f"{'b':>5s} {'forward':>9s} {'law':>9s} {'backward':>9s} {'law':>9s}")
    for size, both in zip(sizes, seconds, strict=True):
        pairs = zip(both, (alpha + beta * size for alpha, beta in law.values()), strict=True)
        print(f"{size:5d} " + " ".join(f"{1e3 * found:9.3f} {1e3 * by_law:9.3f}" for found, by_law in pairs))
    parameters = system_parameters(scenario)
    speed = CLOCK_HZ * scenario.devices.profiles[0].flops_per_cycle
    priced = (
        cycles_time(1.0, parameters.overheads.block_cycles, CLOCK_HZ),
        stage_time(1.0, 1.0, parameters.costs.block_forward_flops, speed),
    )
    for what, (alpha, beta) in {**law, "priced at 1 GHz, either way": priced}.items():
        print(
            f"{what}: alpha {1e3 * alpha:.3f} ms, beta {1e3 * beta:.3f} ms a sample: alpha is "
            f"{alpha / beta:.2f} samples"
        )

    def whole(size: int) -> tuple[float]:
        return (sum(sum(passes(size)) for _ in range(B // size)),)

    together = measured(whole, sizes, max(3, slices // 3))[:, 0] / options.blocks
    print("a whole mini-batch in M micro-batches, over the time in one")
    comparison = []
    for size, found in zip(sizes, together, strict=True):
        M = B // size
        by_law = sum(alpha * M + beta * B for alpha, beta in law.values())
        comparison.append({"micro_batches": M, "measured_s": float(found), "law_s": by_law})
        print(f"{M:5d} measured {found / together[-1]:6.3f}  law {by_law / found:6.3f} of the measured time")
    rows = {way: {"alpha_s": a, "beta_s": b, "samples": a / b} for way, (a, b) in law.items()}
    what = "the law of pass costs against the real learner's passes on this machine"
    store(options, what, law=rows, mini_batch=comparison)


main = command(Options, compare, __doc__)

if __name__ == "__main__":
    sys.exit(main())
