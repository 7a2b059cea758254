"""State of a head, restored when a local step is repeated."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch


class HeadState(NamedTuple):
    """Weights of a head and the memory of its optimiser, kept to be restored.

    Attributes:
        values: Its parameters.
        memory: The optimiser's memory of each of its groups.
    """

    values: list[torch.Tensor]
    memory: list[dict[str, Any]]

    @classmethod
    def of(cls, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> HeadState:
        """Return a copy of the present state."""
        parameters = [group["params"][0] for group in optimizer.param_groups]
        memory = [
            {
                n: v.clone() if isinstance(v, torch.Tensor) else v
                for n, v in optimizer.state.get(p, {}).items()
            }
            for p in parameters
        ]
        return cls([p.detach().clone() for p in module.parameters()], memory)

    @torch.no_grad()
    def restore(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Restore this state."""
        for parameter, values in zip(module.parameters(), self.values, strict=True):
            parameter.copy_(values)
        optimizer.state.clear()
        for group, memory in zip(optimizer.param_groups, self.memory, strict=True):
            if memory:
                optimizer.state[group["params"][0]] = {
                    n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in memory.items()
                }
