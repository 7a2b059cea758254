"""Rounds of the server whose commands and updates somebody else carries: the server's side of a federation."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.edge_server import EdgeServer
from collapipe_env.execution.flower.diverted_endpoint import DivertedEndpoint
from collapipe_env.execution.flower.frame_records import Arrays, require_update
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError, HeldEndpoint
from collapipe_env.execution.parts import EMBEDDING, VALUES, block_name
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.recoveries import Recoveries
from collapipe_env.execution.role import LAUNCHER, SERVER, control_unit_name, node_name
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.setting import TrainingSetting, require_executable
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.physics.migration import LOST
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

CLOCKS = ("virtual", "none")
"""Clocks of a federation: by the wall clock the carrier's own delays would count as the clusters'."""


class FederatedRounds:
    """The edge server, with the planning of rounds, in a federation.

    The head's traffic (targets, activations, gradients) goes by TCP between this server and the clusters'
    sites. The command of a round, with the common model, and the update, with the cluster's model, are
    handed out by :meth:`begin_round` and taken back by :meth:`end_round`. Optimisers' moments stay with the
    sites. The merge is the federation's own exchange.

    Attributes:
        scenario: The scenario.
        federation: The training run.
        rounds: Rounds that were played.

    Args:
        scenario: The scenario.
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        clock: ``virtual`` or ``none``.
        bind: Host and port at which sites join.
        token: Secret of server and sites.

    Raises:
        ExecutionError: The clock is another one.
        ScenarioError: The scenario cannot be executed.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        clock: str = "virtual",
        bind: Address = ("127.0.0.1", 0),
        token: str = "",
    ) -> None:
        if clock not in CLOCKS:
            raise ExecutionError(f"clock {clock!r} is none of a federation: use {' or '.join(CLOCKS)}")
        require_executable(scenario)
        self.scenario, self._clock = scenario, clock
        self._plan = PlannedRounds(scenario, scheduler, seed)
        setting = TrainingSetting.of(scenario, self._plan.new_generator)
        self.federation = setting.federation()
        self._recoveries = Recoveries(scenario)
        self._news: queue.SimpleQueue[tuple[str, Frame | str]] = queue.SimpleQueue()
        self._launcher = HeldEndpoint(TcpEndpoint(LAUNCHER, bind, token))
        tcp = TcpEndpoint(SERVER, (bind[0], 0), token)
        self._address = tcp.address
        self._connect = tcp.connect
        self._endpoint = DivertedEndpoint(
            tcp, ("round", "result", "failed", "weights", "connected"), lambda to, frame: self._news.put((to, frame))
        )
        self.server = EdgeServer(
            self._endpoint,
            make_clock(clock, 1.0),
            setup=setting.setup,
            federation=self.federation,
            evaluate=setting.evaluate,
        )
        self._update_format = setting.setup.update_format
        clusters = scenario.cluster.clusters
        self._names = [
            {k: node_name(n, k) for k in range(1, devices + 1)}
            for n, devices in enumerate(scenario.cluster.devices_per_cluster)
        ]
        self._lost: list[set[str]] = [set() for _ in range(clusters)]
        self._drawn = [0] * clusters
        self._sites: set[str] = set()
        self._planned: PlannedRound | None = None
        self.rounds = 0
        self._launcher.listen(self._on_frame, lambda peer, why: self._news.put((peer, why)))
        self.server.begin()
        self._thread = threading.Thread(target=self._run, name=SERVER, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.server.run()
        except BaseException as error:  # the queue has been told already
            self._news.put((SERVER, f"{type(error).__name__}: {error}"))

    @property
    def address(self) -> Address:
        """Host and port at which sites join."""
        return self._launcher.address

    @property
    def sizes(self) -> dict[str, int]:
        """Trained weights of each part of the model; 0 where nothing of it is trained."""
        model, flat, _ = self.federation.replica(0)
        modules = [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]
        return {name: sum(p.stop - p.start for p in flat.slices([module])) for name, module in modules}

    def model_arrays(self) -> Arrays:
        """The common model as it goes to the clusters, without the head, copied."""
        model, flat, _ = self.federation.replica(0)
        modules = [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]
        found: Arrays = {}
        for name, module in modules:
            places = flat.slices([module])
            if places:
                parts = [flat.values[place].numpy() for place in places]
                found[f"{name}/{VALUES}"] = np.concatenate(parts)
        return found

    def all_weights(self) -> Arrays:
        """Weights of the common model and of the head, by the names of their parameters, copied."""
        return {
            f"{part}/{name}": parameter.detach().numpy().copy()
            for part, module in zip(("model", "head"), self.federation.common_model, strict=True)
            for name, parameter in module.named_parameters()
        }

    def update_bits(self) -> tuple[int, int]:
        """Bits of one cluster's update, and most of a broadcast, of the trained model in the priced format."""
        sizes, wire = [size for size in self.sizes.values() if size], self._update_format
        senders = len(self._names)
        return sum(map(wire.upload_bits, sizes)), sum(wire.broadcast_bits(size, senders) for size in sizes)

    def take_beside(self) -> tuple[int, int]:
        """Bytes of the head's traffic that went to the sites and came from them since the last call."""
        return self._endpoint.take_beside()

    def wait_for_sites(self, patience: float = 600.0) -> None:
        """Wait until a site a cluster has joined, tell each what it is, and where the server is.

        Args:
            patience: Longest wait [s].

        Raises:
            ExecutionError: One is missing after that time, or lost.
        """
        names = {control_unit_name(n) for n in range(len(self._names))}
        deadline, ready = time.monotonic() + patience, set[str]()
        while ready < names:
            sender, item = self._next(deadline, f"{', '.join(sorted(names - ready))} to be ready")
            if isinstance(item, str):
                raise ExecutionError(f"{sender} was lost before it was ready: {item}")
            if item.kind == "join" and sender in names:
                address = str(item.meta["host"]), int(item.meta["port"])
                self._launcher.connect({sender: address})
                self._connect({sender: address})
                spec = {
                    "scenario": self.scenario.to_dict(),
                    "generator": self._plan.generator,
                    "clock": self._clock,
                    "scale": 1.0,
                }
                self._launcher.send(sender, Frame("spec", meta=spec))
            elif item.kind == "ready" and sender in names:
                directory = {LAUNCHER: list(self.address), SERVER: list(self._address)}
                self._launcher.send(sender, Frame("directory", meta={"directory": directory}))
                self._sites.add(sender)
            elif item.kind == "connected" and sender in names:
                ready.add(sender)

    def begin_round(self) -> dict[int, Frame]:
        """Plan a round and begin it.

        Returns:
            Command of each cluster that plays, with the common model.

        Raises:
            ExecutionError: Something is lost, or a round is under way.
        """
        if self._planned is not None:
            raise ExecutionError(f"round {self.rounds} is under way: end it first")
        planned = self._planned = self._plan.next()
        self._recoveries.begin(planned)
        moments = planned.outcome.moments
        arrays: Arrays = {} if moments is None else {"moments": moments[0]}
        for n in range(len(self._names)):
            if moments is not None:
                self._lost[n] |= {block_name(b) for b in np.flatnonzero(moments[0][n] == LOST).tolist()}
        meta = {
            "script": to_json(planned.script),
            "machine_begins": time.monotonic(),
            "drawn": self._drawn,
            "names": [{str(k): name for k, name in names.items()} for names in self._names],
            "faults": [[[k, at] for m, k, at in self._failing if m == n] for n in range(len(self._names))],
        }
        self.server.on_frame(LAUNCHER, Frame("round", Tag(self.rounds), 0.0, meta, arrays))
        commands: dict[int, Frame] = {}
        deadline = time.monotonic() + 600.0
        for _ in self._names:
            to, frame = self._expect("round", deadline)
            n = int(to[1:])
            if planned.script.clusters[n].plays:
                lost = sorted(self._lost[n])
                self._lost[n] = set()
                commands[n] = Frame(
                    frame.kind, frame.tag, frame.at_s, {**frame.meta, "lost_moments": lost}, frame.arrays
                )
        return commands

    def end_round(
        self, updates: Mapping[int, Frame], patience: float = 600.0
    ) -> tuple[PlannedRound, dict[str, Any]]:
        """Take the updates, and make the next common model.

        Args:
            updates: Update of each cluster that plays.
            patience: Longest wait for the merge [s].

        Returns:
            What was planned, and the server's report.

        Raises:
            ExecutionError: A cluster's update is missing, or something is lost.
            FrameError: An update does not fit the model.
        """
        planned = self._planned
        if planned is None:
            raise ExecutionError("no round is under way: begin one first")
        playing = {n for n, cluster in enumerate(planned.script.clusters) if cluster.plays}
        if missing := playing - set(updates):
            raise ExecutionError(
                f"round {self.rounds} has no update of cluster {', '.join(map(str, sorted(missing)))}: look "
                "at the logs of their sites and nodes; the run ends here"
            )
        for n in sorted(playing):
            if not updates[n].meta.get("dropped"):
                require_update(updates[n], self.sizes, n)
        for n in sorted(playing):
            self.server.on_frame(control_unit_name(n), updates[n])
        _, frame = self._expect("result", time.monotonic() + patience)
        for n, k, _ in self._failing:
            self._names[n][k] = f"{node_name(n, k)}.{self.rounds + 1}"
        self.rounds, self._planned = self.rounds + 1, None
        for n, cluster in enumerate(planned.script.clusters):
            self._drawn[n] += cluster.local_steps if cluster.plays else 0
        return planned, dict(frame.meta)

    def close(self) -> None:
        """Stop the sites and the server."""
        for name in sorted(self._sites):
            self._launcher.send(name, Frame("stop"))
        self.server.stop()
        self._thread.join(10.0)
        self._launcher.close()

    def __enter__(self) -> FederatedRounds:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _failing(self) -> Sequence[tuple[int, int, float]]:
        """Devices that fail in the present round by the simulator, and by the virtual clock."""
        if self._planned is None or self._clock != "virtual":
            return ()
        return self._planned.failures

    def _on_frame(self, sender: str, frame: Frame) -> None:
        if frame.kind == "lost":
            self._launcher.send(sender, self._recoveries.answer(frame))
        else:
            self._news.put((sender, frame))

    def _expect(self, kind: str, deadline: float) -> tuple[str, Frame]:
        """Wait for a frame of a kind; anything else ends the run."""
        name, item = self._next(deadline, f"{kind!r} in round {self.rounds}")
        if isinstance(item, str):
            raise ExecutionError(f"{name} was lost in round {self.rounds}: {item}")
        if item.kind == "failed":
            raise ExecutionError(f"round {self.rounds} failed: {item.meta['why']}")
        if item.kind != kind:
            raise ExecutionError(f"{name} has {item.kind!r} in round {self.rounds}, expected {kind!r}")
        return name, item

    def _next(self, deadline: float, what: str) -> tuple[str, Frame | str]:
        try:
            return self._news.get(timeout=max(deadline - time.monotonic(), 0.0))
        except queue.Empty:
            raise ExecutionError(f"nothing was heard for too long while waiting for {what}") from None


