"""The edge server's rounds, with commands and updates that an external carrier transports [X]."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from collapipe_env.execution.clock import make_clock
from collapipe_env.execution.edge_server import EdgeServer
from collapipe_env.execution.flower.frame_records import require_update, without_moments
from collapipe_env.execution.flower.head_endpoint import HeadEndpoint
from collapipe_env.execution.frames import Frame, Tag
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.parts import EMBEDDING, VALUES, Arrays, block_name
from collapipe_env.execution.planned_rounds import PlannedRound, PlannedRounds
from collapipe_env.execution.recoveries import Recoveries
from collapipe_env.execution.role import LAUNCHER, SERVER, control_unit_name, node_name
from collapipe_env.execution.script_reading import to_json
from collapipe_env.execution.setting import TrainingSetting, require_executable
from collapipe_env.execution.transport.tcp import Address, TcpEndpoint
from collapipe_env.physics.migration import LOST
from collapipe_env.scenario import Scenario
from collapipe_env.schedulers import Scheduler

PATIENCE_S = 600.0
"""Longest wait for the server's own work [s]."""


class PricedBits(NamedTuple):
    """Bits of one cluster's messages in a round, as they are priced.

    Attributes:
        upload: Bits of its update.
        broadcast: Most bits of the common model.
    """

    upload: int
    broadcast: int


class FederatedRounds:
    """The edge server of a federation, with the planning of its rounds.

    :meth:`begin_round` returns the command for each cluster, and :meth:`end_round` takes their updates. The
    head's traffic goes by TCP between this server and the clusters' control units while the round is under
    way. Times are those of the virtual clock: a carrier's own delays do not count.

    Attributes:
        scenario: The scenario.
        federation: The training run.
        rounds: Rounds that were played.

    Args:
        scenario: The scenario.
        scheduler: Decides the rounds.
        seed: Seed of the episode.
        bind: Host and port at which control units join.
        token: Secret of the server and of control units.

    Raises:
        ScenarioError: If the scenario cannot be executed.
        TransportError: If the server cannot listen at the address.
        TokenError: If other machines can connect, and the token is missing or short.
    """

    def __init__(
        self,
        scenario: Scenario,
        scheduler: Scheduler,
        *,
        seed: int = 0,
        bind: Address = ("127.0.0.1", 0),
        token: str = "",
    ) -> None:
        require_executable(scenario)
        self.scenario, self.rounds = scenario, 0
        self._clusters = scenario.cluster.clusters
        self._plan = PlannedRounds(scenario, scheduler, seed)
        setting = TrainingSetting.of(scenario, self._plan.new_generator)
        self.federation = setting.federation()
        self._format = setting.setup.update_format
        self._recoveries = Recoveries(scenario)
        self._news: queue.SimpleQueue[tuple[str, Frame]] = queue.SimpleQueue()
        self._planned: PlannedRound | None = None
        self._lost: list[set[str]] = [set() for _ in range(self._clusters)]
        self._drawn = [0] * self._clusters
        self._endpoint = HeadEndpoint(
            TcpEndpoint(SERVER, bind, token),
            self._clusters,
            take=lambda to, frame: self._news.put((to, frame)),
            ask=lambda sender, frame: self._endpoint.send(sender, self._recoveries.answer(frame)),
        )
        self._server = EdgeServer(
            self._endpoint,
            make_clock("virtual", 1.0),
            setup=setting.setup,
            federation=self.federation,
            evaluate=setting.evaluate,
            save=setting.save,
        )
        self._server.begin()
        self._thread = threading.Thread(target=self._run, name=SERVER, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # A failure is among the news already, and is raised where they are read.
        try:
            self._server.run()
        except Exception:
            return

    @property
    def address(self) -> Address:
        """Host and port at which control units join."""
        return self._endpoint.address

    @property
    def sizes(self) -> dict[str, int]:
        """Trained weights of each part of the model outside the head."""
        model, flat, _ = self.federation.replica(0)
        modules = [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]
        return {name: sum(p.stop - p.start for p in flat.slices([module])) for name, module in modules}

    def model_arrays(self) -> Arrays:
        """Return the common model without its head, as it goes to the clusters."""
        model, flat, _ = self.federation.replica(0)
        modules = [(EMBEDDING, model.embedding), *((block_name(b), m) for b, m in enumerate(model.blocks))]
        return {
            f"{name}/{VALUES}": np.concatenate([flat.values[place].numpy() for place in places])
            for name, module in modules
            if (places := flat.slices([module]))
        }

    def all_weights(self) -> Arrays:
        """Return the common model and the head, by the names of their parameters."""
        return {
            f"{part}/{name}": parameter.detach().numpy().copy()
            for part, module in zip(("model", "head"), self.federation.common_model, strict=True)
            for name, parameter in module.named_parameters()
        }

    def priced_bits(self) -> PricedBits:
        """Return the bits of one cluster's messages in a round, for the trained model."""
        sizes = [size for size in self.sizes.values() if size]
        return PricedBits(
            sum(map(self._format.upload_bits, sizes)),
            sum(self._format.broadcast_bits(size, self._clusters) for size in sizes),
        )

    def take_beside(self) -> tuple[int, int]:
        """Return the bytes of the head's traffic sent to control units and received since the last call."""
        return self._endpoint.take_beside()

    def begin_round(self) -> dict[int, Frame]:
        """Plan a round and begin it.

        Returns:
            Command of each cluster that plays, with the common model and without moments.

        Raises:
            ExecutionError: If a round is under way, or the server has failed.
        """
        if self._planned is not None:
            raise ExecutionError(f"round {self.rounds} is under way: end it first")
        planned = self._planned = self._plan.next()
        self._recoveries.begin(planned)
        self._endpoint.begin(self.rounds)
        moments = planned.outcome.moments
        arrays: Arrays = {} if moments is None else {"moments": moments[0]}
        devices, clusters = self.scenario.cluster.devices_per_cluster, range(self._clusters)
        meta = {
            "script": to_json(planned.script),
            "machine_begins": 0.0,
            "drawn": self._drawn,
            "names": [{str(k): node_name(n, k) for k in range(1, devices[n] + 1)} for n in clusters],
            "faults": [[[k, at] for m, k, at in planned.failures if m == n] for n in clusters],
        }
        self._server.on_frame(LAUNCHER, Frame("round", Tag(self.rounds), 0.0, meta, arrays))
        commands: dict[int, Frame] = {}
        for _ in range(self._clusters):
            to, frame = self._expect("round")
            n = int(to.removeprefix("c"))
            if moments is not None:
                self._lost[n] |= {block_name(b) for b in np.flatnonzero(moments[0][n] == LOST).tolist()}
            if planned.script.clusters[n].plays:
                commands[n] = self._command(n, without_moments(frame)[0])
        return commands

    def _command(self, n: int, frame: Frame) -> Frame:
        """Return a command with everything that a process needs that begins only now."""
        lost, self._lost[n] = sorted(self._lost[n]), set()
        more = {
            "skipped": self._drawn[n],
            "lost_moments": lost,
            "cluster": n,
            "head": list(self.address),
            "scenario": self.scenario.to_dict(),
            "generator": self._plan.generator,
        }
        return Frame(frame.kind, frame.tag, frame.at_s, {**frame.meta, **more}, frame.arrays)

    def end_round(self, updates: Mapping[int, Frame]) -> tuple[PlannedRound, dict[str, Any]]:
        """Take the updates, and make the next common model.

        Args:
            updates: Update of each cluster that plays, without moments.

        Returns:
            The planned round, and the server's report.

        Raises:
            ExecutionError: If no round is under way, an update is missing, or the server has failed.
            FrameError: If an update does not fit the round or the model.
        """
        planned = self._planned
        if planned is None:
            raise ExecutionError("no round is under way: begin one first")
        playing = {n for n, cluster in enumerate(planned.script.clusters) if cluster.plays}
        self.require_going()
        if missing := sorted(playing - set(updates)):
            raise ExecutionError(
                f"round {self.rounds} has no update of cluster {', '.join(map(str, missing))}: look at the "
                "logs of its SuperNode; a round cannot end without it"
            )
        for n in sorted(playing):
            if not updates[n].meta.get("dropped"):
                require_update(updates[n], self.sizes, n)
        for n in sorted(playing):
            self._server.on_frame(control_unit_name(n), updates[n])
        _, frame = self._expect("result")
        self.rounds, self._planned = self.rounds + 1, None
        for n, cluster in enumerate(planned.script.clusters):
            self._drawn[n] += cluster.local_steps if cluster.plays else 0
        return planned, dict(frame.meta)

    def require_going(self) -> None:
        """Raise the server's failure, if there is one.

        Raises:
            ExecutionError: If the server has failed.
        """
        while not self._news.empty():
            self._expect("nothing")

    def close(self) -> None:
        """Stop the server; a round that is under way is given up."""
        if self._planned is None:
            self._server.on_frame(LAUNCHER, Frame("stop"))
        else:
            self._server.cannot_go_on(LAUNCHER, "the run ends within a round")
        self._thread.join(10.0)
        self._endpoint.close()

    def __enter__(self) -> FederatedRounds:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _expect(self, kind: str) -> tuple[str, Frame]:
        """Wait for the server's next message; a message of any other kind ends the run."""
        try:
            name, frame = self._news.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise ExecutionError(
                f"the server has not answered for {PATIENCE_S:g} s in round {self.rounds}: look at its log"
            ) from None
        if frame.kind == "failed":
            raise ExecutionError(f"round {self.rounds} failed: {frame.meta['why']}")
        if frame.kind != kind:
            raise ExecutionError(f"the server says {frame.kind!r} in round {self.rounds}, expected {kind!r}")
        return name, frame
