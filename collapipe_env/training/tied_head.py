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
from torch import nn

from collapipe_env.models.cluster_model import ClusterModel
from collapipe_env.models.language_head import LanguageHead
from collapipe_env.training.flat_parameters import Trained


@torch.no_grad()
def share_table(model: ClusterModel, head: nn.Module) -> None:
    """Copy the embedding's table into a tied head, frozen if the table is; leave any other head alone."""
    if isinstance(head, LanguageHead) and head.tied:
        head.weight.copy_(model.embedding.weight)
        head.weight.requires_grad_(model.embedding.weight.requires_grad)


def tied_places(replica: Trained[ClusterModel], server: Trained[nn.Module]) -> tuple[slice, slice]:
    """Return a trained table's places in a cluster's parameters and the head's; empty if there is none."""
    head = server.module
    if not isinstance(head, LanguageHead) or not head.tied or not head.weight.requires_grad:
        return slice(0, 0), slice(0, 0)
    return replica.flat.places[replica.module.embedding.weight], server.flat.places[head.weight]
