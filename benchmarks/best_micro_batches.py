"""Best number of micro-batches of the even split at mean gains, without and with overheads.

python benchmarks/best_micro_batches.py
python benchmarks/best_micro_batches.py --scenarios medium xlarge --block-s 0.03 --message-s 0.005
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

import numpy as np

from collapipe_env.scenario import OverheadSpec, Scenario, fixed_layout, load_scenario
from collapipe_env.simulator.build import mean_state, system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

OVERHEADS = asdict(OverheadSpec())
"""Overheads of the shipped scenarios."""


def delays(scenario: Scenario) -> dict[int, float]:
    """Delay of a round [s] by the number of micro-batches."""
    parameters, state = system_parameters(scenario), mean_state(scenario, fixed_layout(scenario))
    plan = even_split(parameters, state)
    return {
        M: float(
            round_costs(
                parameters, state, replace(plan, micro_batches=np.full_like(plan.micro_batches, M))
            ).delay
        )
        for M in parameters.micro_batch_choices
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", nargs="+", default=["small", "medium", "large"])
    for name, value in OVERHEADS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=value)
    options = vars(parser.parse_args(arguments))
    names = options.pop("scenarios")
    print("| scenario | overheads | best M | round delay (s) by M |\n|---|---|---:|---|")
    for name in names:
        for overheads in (dict.fromkeys(OVERHEADS, 0.0), options):
            found = delays(load_scenario({"base": name, "overheads": overheads}))
            best = min(found, key=lambda M: found[M])
            which = "yes" if any(overheads.values()) else "none"
            row = ", ".join(f"{M}: {delay:.2f}" for M, delay in found.items())
            print(f"| {name} | {which} | {best} | {row} |")


if __name__ == "__main__":
    main()
