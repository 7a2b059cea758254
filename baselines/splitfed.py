"""SplitFed V1 and V2 (Thapa et al., AAAI 2022): split learning with federated averaging.

Public (``algorithms.md`` section 6): a client holds the first layers of the model and the server the others.
V1 keeps a server-side copy for every client and averages all copies after each round; V2 has one server-side
model, which serves the clients one after another. Client-side models are averaged in both. The form of
the round is the field's standard one ([R]):

    V1: T_n = H (F_client + up + F_server + B_server + down + B_client) + collection + upload of the client
        side, with 1 / N of the server's speed; the round lasts max_n T_n and the broadcast.
    V2: the server's part waits in one queue over the clusters and then has the whole speed.

Ours ([X]): how clients are mapped to clusters and what the server is charged for, see
:mod:`.planning.split_training`, which also says why **these delays are not on equal terms with DSSRA's**. The
cut is not prescribed; here it is the best one by enumeration with the delay that the simulator charges, in
every round: one per cluster for V1 and one for all for V2, whose server has one model. V2's server takes the
clusters in the order in which they arrive; the public sources do not say in which order it takes the clients.

SplitFed does not pipeline: ``M = 1``, the mini-batch crosses the chain as a whole. Queues of the energy
budgets are ignored.
"""

from __future__ import annotations

import numpy as np

from collapipe_env.ground.arrays import BoolArray, IntArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.physics.allocation import SEQUENTIAL, Allocation
from collapipe_env.physics.memory import fits
from collapipe_env.physics.server import server_memory
from collapipe_env.scenario import Scenario
from collapipe_env.simulator.state import SystemState

from .planning.split_training import SplitTraining


class SplitFedV1(SplitTraining):
    """A server-side copy and a cut for every cluster; together the cuts are the best for the round.

    Raises:
        ScenarioError: If the scenario does not allow ``M = 1``.
    """

    name = "SplitFed V1"

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        if 1 not in self.numbers:
            raise ScenarioError(
                f"workload.micro_batches is {list(self.numbers)}, but SplitFed sends the mini-batch as a "
                "whole: add 1"
            )
        self.numbers = (1,)


class SplitFedV2(SplitFedV1):
    """One server-side model and one cut for all clusters, the best one for the round."""

    name = "SplitFed V2"

    def choose(self, state: SystemState, device: IntArray, exists: BoolArray) -> Allocation:
        """See :meth:`SplitTraining.choose`; the server has room for one model."""
        plans, costs = self.priced(state, device, 1, SEQUENTIAL)
        terms = self.parameters.server
        possible = exists.all(axis=-1) & np.asarray(fits(server_memory(terms, plans), terms.memory_bytes))
        common = 1 + np.where(possible, costs.delay, np.inf).argmin(axis=0)
        cuts = np.repeat(common[:, None], device.shape[-1], axis=-1)
        return self.plan(cuts, device, np.ones_like(device), SEQUENTIAL)
