"""The card of an agent of the zoo, made from the record of its training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from generated_parts import markdown_table

from collapipe_env.agents.learned.agent_file import AgentRecord
from collapipe_env.zoo.shipped_agents import PREFIX, ShippedAgent

CARD = """# {agent.name}

{agent.description}

{facts}

## Figures

{agent.figures}.

## Training

```bash
{agent.command}
```

Hyper-parameters:

{hyperparameters}

{training}## Reads and decides

{shapes}

## Limits of use

{where} The file holds only what playing needs; its training cannot be resumed from it. Its figures are from \
the package version above; `collapipe evaluate --agent {prefix}{agent.name}` measures it with the installed \
version.
"""
SIZED = (
    "It plays only scenarios whose observations and decisions are exactly those in the table above, in these "
    "sizes; others are refused. It was not measured on scenarios of these sizes with other radios, devices, "
    "budgets or longer episodes."
)
ANY_SIZE = "It was trained on {}; other systems were measured only where this card says so."


def card(agent: ShippedAgent, record: AgentRecord, weights: int, notes: str) -> str:
    """The card in Markdown, with the number of weights, and notes at its end."""
    training = {name: _shown(value) for name, value in record.training.items()}
    facts = {
        "algorithm": record.algorithm,
        "trained on": f"`{record.trained_on}`",
        "seed": training.get("seed", "-"),
        "steps": f"{record.steps:,} for this version; the training was set to "
        f"{training.get('steps', _shown(record.steps))}",
        "seconds": training.get("seconds", "-"),
        "environments": training.get("envs", "-"),
        "learner, reward": f"{training.get('learner', '-')}, {training.get('reward', '-')}",
        "file": f"`{agent.file}`, {weights:,} weights, {agent.size:,} bytes",
        "SHA-256": f"`{agent.sha256}`",
        "licence": "MIT, as the package",
        "written by": f"collapipe-env {record.package_version}",
    }
    parts = []
    if record.systems:
        parts += ["Systems that it was trained on:", _json(record.systems)]
    if record.history:
        parts += ["Validations during training, oldest first:", curve(record.history)]
    shapes = [
        (kind, f"`{name}`", tuple(shape))
        for kind, of in (("reads", record.features), ("decides", record.decisions))
        for name, shape in of.items()
    ]
    text = CARD.format(
        agent=agent,
        facts=markdown_table(("", ""), facts.items(), left=2),
        hyperparameters=_json(record.hyperparameters),
        training="".join(f"{part}\n\n" for part in parts),
        shapes=markdown_table(("", "name", "shape"), shapes, left=3),
        where=SIZED if record.scenario else ANY_SIZE.format(record.trained_on),
        prefix=PREFIX,
    )
    return f"{text}\n{notes.strip()}\n" if notes.strip() else text


def curve(history: Sequence[Mapping[str, Any]]) -> str:
    """The validations that a checkpoint holds as a table, one per row."""
    names = list(dict.fromkeys(name for entry in history for name in entry))
    return markdown_table(
        names, [[_shown(entry.get(name)) for name in names] for entry in history], len(names)
    )


def best_of(history: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The validation with the smallest objective, which training keeps as the best; the first if equal."""
    judged = [entry for entry in history if isinstance(entry.get("objective"), int | float)]
    return min(judged, key=lambda entry: float(entry["objective"]), default=None)


def validation_figures(record: AgentRecord) -> str:
    """The figures of the best validation in one line; nothing if they are not recorded."""
    best = best_of(record.history)
    rounds = record.scenario.get("dynamics", {}).get("rounds")
    episodes = record.training.get("validation_episodes")
    if best is None or rounds is None or episodes is None or not {"mean_delay", "energy_ratio"} <= set(best):
        return ""
    energy = 100.0 * (best["energy_ratio"] - 1.0)
    return (
        f"round delay {best['mean_delay']:.2f} s, worst node's energy {energy:+.1f} % against its budget "
        f"({episodes} validation episodes of {rounds} rounds)"
    )


def _json(values: Mapping[str, Any]) -> str:
    return f"```json\n{json.dumps(values, indent=2)}\n```"


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return "-" if value is None or value == "" else str(value)
