"""A language model's head tied to the embedding's table: the head is on the server, the table on the CUs.

The server keeps a copy of the table as its output matrix. Within a round both sides train their own copies;
at its end the server adds the change of its copy to the clusters' mean update of the table, broadcasts the
sum, and adopts the new table ([X]). For one local step of plain SGD with one step size this is the step of a
model whose two ends are one matrix, since the gradient of that matrix is the sum of both. The tie adds no
traffic: the table goes up and down anyway. Under low-rank adapters the table is frozen, and so is the
server's copy.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.training.flat_parameters import FlatParameters
from collapipe_env.training.servers import Trained


def share_table(model: ClusterModel, head: nn.Module) -> None:
    """Copy the embedding's table into a tied head; leave any other head alone."""
    if isinstance(head, LanguageHead) and head.tied:
        with torch.no_grad():
            head.weight.copy_(model.embedding.weight)


def freeze_table(head: nn.Module) -> None:
    """Let a tied head keep its matrix, because the table is frozen; leave any other head alone."""
    if isinstance(head, LanguageHead) and head.tied:
        head.weight.requires_grad_(False)


class TiedHead:
    """The two places of a trained table: in the clusters' parameters and in the head's."""

    def __init__(self, table: slice, matrix: slice, head: FlatParameters) -> None:
        """Remember the places.

        Args:
            table: Place in the clusters' flat parameters.
            matrix: Place in the common head's flat parameters.
            head: The common head's parameters.
        """
        self._table, self._matrix, self._head = table, matrix, head

    def update(self, head: Tensor, common: Tensor) -> tuple[slice, Tensor]:
        """Return the table's place in the clusters' parameters, and how far the head has moved it.

        Args:
            head: Parameters that the head ends the round with, flat.
            common: The clusters' parameters that the round began with, shape (P,).
        """
        return self._table, head[self._matrix] - common[self._table]

    def take_over(self, parameters: Tensor) -> None:
        """Make the head's matrix the table.

        Args:
            parameters: The next common parameters of the clusters, shape (P,).
        """
        self._head.values[self._matrix] = parameters[self._table]


def tied_head(model: ClusterModel, flat: FlatParameters, head: Trained) -> TiedHead | None:
    """Return the tie of a head to the embedding's table; None if there is none, or both are frozen.

    Args:
        head: The common head.
    """
    module = head.module
    if not isinstance(module, LanguageHead) or not module.tied or not module.weight.requires_grad:
        return None
    table, matrix = flat.place(model.embedding.weight), head.flat.place(module.weight)
    return TiedHead(table, matrix, head.flat)
