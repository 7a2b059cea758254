"""Apps of Flower: the edge server as ServerApp, a cluster's control unit as ClientApp; needs Flower [X].

Settings of the run (``flwr run --run-config``) are for the server: ``scenario``, ``scheduler``, ``seed``,
``rounds``, ``bind``, ``token-file``, ``out`` and ``patience``. Settings of a node
(``flower-supernode --node-config``) are ``cluster``, ``bind`` and ``token-file``.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from collapipe_env.evaluation.rounds import lasting
from collapipe_env.evaluation.scheduler_loading import full_names, load_scheduler, require_scheduler
from collapipe_env.execution.flower.cluster_visit import play_cluster
from collapipe_env.execution.flower.federated_rounds import FederatedRounds
from collapipe_env.execution.flower.round_figures import RoundFigures, packed
from collapipe_env.execution.flower.settings import (
    FAILED_FILE,
    RESULT_FILE,
    WEIGHTS_FILE,
    ClientSettings,
    ServerSettings,
)
from collapipe_env.execution.flower.strategy import (
    CollaPipeStrategy,
    array_record,
    frame_of,
    plain_arrays,
    records_of,
)
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.files import write_bytes, write_json
from collapipe_env.scenario import load_scenario

CLUSTER, MOMENTS = "cluster", "moments"
"""Names of records: number of a node's cluster, and the moments that a node keeps from round to round."""
_LOOK_S = 0.2

server = ServerApp()
client = ClientApp()


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the rounds; their results are written to the folder ``out``."""
    torch.set_num_threads(1)
    settings = ServerSettings.of(context.run_config)
    try:
        _serve(grid, settings)
    except BaseException as error:
        write_json(settings.out / FAILED_FILE, {"why": f"{type(error).__name__}: {error}"})
        raise


def _serve(grid: Grid, settings: ServerSettings) -> None:
    scenario = lasting(load_scenario(settings.scenario), settings.rounds)
    require_scheduler(settings.scheduler)
    (name,) = full_names([settings.scheduler])
    done: list[dict[str, Any]] = []

    def report(figures: RoundFigures) -> None:
        done.append(figures.as_dict())
        write_json(settings.out / RESULT_FILE, {"finished": False, "rounds": done})

    with FederatedRounds(
        scenario,
        load_scheduler(name, scenario, None),
        seed=settings.seed,
        bind=settings.bind,
        token=settings.token,
    ) as rounds:
        nodes = find_nodes(grid, scenario.cluster.clusters, settings.patience_s)
        CollaPipeStrategy(rounds, nodes, report).start(
            grid, array_record(rounds.model_arrays()), settings.rounds, settings.patience_s
        )
        write_bytes(settings.out / WEIGHTS_FILE, packed(rounds.all_weights()))
    write_json(settings.out / RESULT_FILE, {"finished": True, "rounds": done})


def find_nodes(grid: Grid, clusters: int, patience_s: float) -> dict[int, int]:
    """Wait until there is a node for every cluster.

    Args:
        grid: Flower's connection to the nodes.
        clusters: Number of clusters.
        patience_s: Longest wait [s].

    Returns:
        Number of each cluster's node.

    Raises:
        ExecutionError: If a cluster has no node in time or has two, or a node reports an error.
    """
    deadline, asked, found = time.monotonic() + patience_s, set[int](), dict[int, int]()
    while len(found) < clusters:
        fresh = [node for node in grid.get_node_ids() if node not in asked]
        asked |= set(fresh)
        messages = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in fresh]
        for reply in grid.send_and_receive(messages, timeout=patience_s) if messages else ():
            node = reply.metadata.src_node_id
            if reply.has_error():
                raise ExecutionError(f"a SuperNode cannot begin: {reply.error.reason}")
            n = reply.content.config_records[CLUSTER]["number"]
            if not isinstance(n, int) or not 0 <= n < clusters:
                raise ExecutionError(
                    f"a SuperNode is for cluster {n}, but the scenario has clusters 0 to {clusters - 1}: "
                    "set cluster in its --node-config"
                )
            if n in found:
                raise ExecutionError(f"two SuperNodes are for cluster {n}: start one a cluster")
            found[n] = node
        if time.monotonic() > deadline:
            missing = ", ".join(str(n) for n in range(clusters) if n not in found)
            raise ExecutionError(f"no SuperNode for cluster {missing} has connected within {patience_s:g} s")
        if len(found) < clusters:
            time.sleep(_LOOK_S)
    return found


@client.query()
def introduce(message: Message, context: Context) -> Message:
    """Say which cluster this node is."""
    settings = ClientSettings.of(context.node_config)
    return Message(RecordDict({CLUSTER: ConfigRecord({"number": settings.cluster})}), reply_to=message)


@client.train()
def play(message: Message, context: Context) -> Message:
    """Play a round of the cluster; its optimisers' memory stays with the node."""
    torch.set_num_threads(1)
    settings = ClientSettings.of(context.node_config)
    command = frame_of(message.content, "round")
    update, moments = play_cluster(
        command,
        plain_arrays(context.state.array_records.get(MOMENTS, ArrayRecord())),
        cluster=settings.cluster,
        token=settings.token,
        bind=settings.bind,
    )
    context.state[MOMENTS] = array_record(moments)
    return Message(records_of(update), reply_to=message)
