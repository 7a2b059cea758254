"""Faults that the tests must find: each mutant changes one line of the core, and its tests have to fail.

    python tests/mutants.py                        all mutants, a few seconds each
    python tests/mutants.py queues.py costs.py:3   those of a file, or one of them

Run it before and after tests are deleted or merged: no mutant may survive that was killed before. A file is
put back after every run, also after Ctrl-C. Compiled loops run as plain Python, so no cache hides a mutant.
"""

import os
import shlex
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"

# Loaded once here rather than in every run, which is a fork of this process.
import gymnasium  # noqa: F401
import numba  # noqa: F401
import pydantic  # noqa: F401
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "collapipe_env"

# A file of the package, wherever it is, and the tests that kill the mutants below it: each a text that it
# holds once, and what replaces it.
MUTANTS = r"""
codec.py: test_codec.py
    self.bandwidth_floor, 0.0) => 0.5 * self.bandwidth_floor, 0.0)
    if wide else at => if wide else at + 1
    unit[..., :K], memory_cap) => unit[..., 1 : K + 1], memory_cap)
memory_choices.py: test_codec.py
    (1.0 - count * floor) * share => (1.0 - floor) * share
sitting_out.py: dynamics/test_presence.py -k sit_out
    (1.0 - count * floor) * part => (1.0 - floor) * part
decode.py: test_codec.py test_apportionment.py
    (len(choices) - 1) + 0.5) => (len(choices) - 1))
    free = 1.0 - N * limits.bandwidth_floor => free = 1.0 - limits.bandwidth_floor
    remainder[j] > mine => remainder[j] >= mine
decode.py: envs/test_wrong_types.py -k show_no_batch
    abs(actions[e, n, i]) < math.inf => actions[e, n, i] == actions[e, n, i]
general_costs.py: physics/test_reference_cases.py physics/test_round_costs.py physics/test_scheduled_rounds.py
    local_step = local_step + update => local_step = local_step - update
    cu_airtime + relay, hops + relay => cu_airtime, hops + relay
    links.rates[..., 1:, 0], payload => links.rates[..., 0, 1:], payload
    from_all = xp.sum(collection => from_all = xp.max(collection
    radio.survival(traffic.loss_exponent + uplink_loss) => radio.survival(traffic.loss_exponent)
    maths = allocation.of_share(maths) => maths = maths
    in_groups = device_steps * group_time => in_groups = group_time
scheduled_round.py: physics/test_round_costs.py
    caps[e, n, k] if split else least => least
    ratio * (forward[S] - launch) + launch => ratio * forward[S] + launch
    latency[S + 2] = extra.edge_latency_s => latency[S + 2] = extra.latency_s
recurrence.py: physics/test_chain_simulation.py
    if m < M - 1 else left) => if m < M else left)
plain_round.py: physics/test_round_costs.py physics/test_participation.py
    row.cross_gain[m, n] * mean_power[m] => row.cross_gain[n, m] * mean_power[m]
    if most > 1.0: => if most > 3.0:
cluster_chain.py: physics/test_round_costs.py physics/test_participation.py
    max(chain[BACKWARD_MAX], downlink) => chain[BACKWARD_MAX]
    max(update, updating) => min(update, updating)
    + H * updating => + updating
    receive_w * sent => 0.0 * sent
    to_cu if last == 0 else => to_cu if last <= 1 else
simulation.py: physics/test_chain_simulation.py
    queued_at[other, head[other]] < queued_at[link, head[link]] => queued_at[other, head[other]] < 0.0
    stored[p] >= limits[p] => stored[p] > limits[p]
    ready_w[r] += 1 => ready_w[r] += 2
timeline.py: physics/test_timeline.py
    start = max(arrived[m], free) => start = arrived[m]
    arrived = [max(arrived)] * micro_batches => arrived = list(arrived)
queues.py: physics/test_allowances.py envs/test_participation_queues.py
    backlog + energy_ratio - granted, 0.0 => backlog + energy_ratio - 1.0, 0.0
    (least - taken) => (taken - least)
    energy_ratio - (each - 1.0) => energy_ratio + (each - 1.0)
world.py: envs/test_participation_queues.py -k stand_still
    found.within(costs.local_steps) => found
    found.only(costs.plays) => found
world.py: dynamics/test_presence.py -k nobody_chose
    absence = where(able_clusters(p, state), moved, absence) => absence = moved
rewards.py: envs/test_participation_queues.py
    where(costs.plays[..., None], each, 0.0 * each) => each
queues.py: dynamics/test_walk_loops.py -k stand_still
    (plays[..., None], following, backlog) => (plays[..., None], following, 0.0 * backlog)
    if plays[e, n] and (i == 0 => if (i == 0
    (i == 0 or present[e, n, i - 1]) => (i >= 0)
world.py: dynamics/test_open_area.py dynamics/test_tenants.py -k 'still or queue'
    excess + above => excess
world.py: dynamics/test_process_parts.py envs/test_single_env.py -k 'test_events or afresh'
    arrived.only(interruption.trained) => arrived
world_states.py: envs/test_single_env.py -k afresh
    rows.fill(state.backlog, 0.0) => state.backlog
round.py: dynamics/test_process_parts.py -k 'not play_the_same and not states'
    others.trained & self.trained => others.trained | self.trained
    others.energy + self.energy => others.energy
moving_system.py: dynamics/test_presence.py -k sit_out
    where(system.present, system.memory_bytes, 0.0) => system.memory_bytes
moving_system.py: dynamics/test_time_base.py
    base == "mixed" and not p => base == "mixed" and p
moving_system.py: dynamics/test_open_area.py -k late
    moved if process.after == EVERY_OTHER else system => system
heat.py: dynamics/test_every_process.py -k 'damaged and heat'
    (np.abs(carried[name] - expected[name]) > SLACK).any() => False
heat.py: dynamics/test_heat.py
    carried["share"] * system.full_speed => carried["share"] * system.speed
thermal.py: dynamics/test_heat.py
    (paused & (reading >= => (paused & (reading <
    reading >= own.set_c - own.hysteresis_k => reading >= own.set_c
presence.py: dynamics/test_every_process.py -k 'damaged and presence'
    (carried["announced"] != self._announced(carried)).any() => False
presence.py: dynamics/test_presence.py -k 'not schedul'
    twice = once <= 0.0 => twice = once <= -1e9
    rest < spec.graceful * share => rest < spec.graceful
    carried["present"] & ~carried["graceful"] => carried["present"]
    xp.where(twice, -once, -left) => xp.where(twice, -once, left)
mdp.py: envs/test_participation_queues.py -k stand_still
    sums["total_delay"] / played => sums["total_delay"]
mdp.py: dynamics/test_tenants.py dynamics/test_open_area.py -k summaries
    xp.maximum(used, sums["total_server_ratio"] => xp.minimum(used, sums["total_server_ratio"]
    sums.get("total_granted", => sums.get("total_nothing",
observation.py: simulator/test_kernels.py -k observations
    numbers = xp.where(state.present, numbers, 0.0) => numbers = numbers
    if not present[e, k]: => if present[e, k]:
features.py: golden/test_golden.py -k Small-Wild
    masked=False => masked=True
features.py: envs/test_physical_observation.py
    cut=methodcaller("diagonal", 1, -2, -1) => cut=itemgetter((..., 0, slice(1, None)))
observation.py: envs/test_physical_observation.py
    values = xp.where(present, values, xp.nan) => values = values
surrogate.py: learners/test_surrogate.py learners/test_own_steps.py -k surrogate
    xp.max(taken => xp.sum(taken
    rows.fill(self._progress, 0.0) => self._progress
    lost += 1.0 - survival[e, n] => lost += survival[e, n]
    made += active / players * step => made += step
failed_rounds.py: simulator/test_replication.py -k credit
    (left.steps - found.credited)[on] => left.steps[on]
failed_rounds.py: simulator/test_failed_rounds.py -k 'not real_learner and not picture'
    (costs.cluster_delay - costs.upload)[..., None] => costs.cluster_delay[..., None]
    (costs.allocation.device_blocks > 0) & costs.plays[..., None] => costs.allocation.device_blocks > 0
plans_left.py: simulator/test_failed_rounds.py -k formulas
    drawn * airtime[:, 0] => drawn * airtime[:, 1]
"""


def file_of(name: str, old: str) -> Path:
    """The file of the package that has a name and holds a text once."""
    found = [path for path in PACKAGE.rglob(name) if path.read_text().count(old) == 1]
    if len(found) != 1:
        raise SystemExit(f"{name}: {len(found)} files hold {old!r} once: update the table")
    return found[0]


def chosen(wanted: list[str]):
    """Name, tests, file, old and new text of each mutant that is named, of all if none is."""
    numbers = Counter()
    for line in MUTANTS.strip().splitlines():
        if not line.startswith(" "):
            file, tests = line.split(": ", 1)
            continue
        name, (old, new) = f"{file}:{numbers[file]}", line.strip().split(" => ")
        numbers[file] += 1
        if not wanted or file in wanted or name in wanted:
            yield name, tests, file_of(file, old), old, new


@contextmanager
def changed(path: Path, old: str, new: str):
    """Hold a mutant in the place of a file."""
    text, stat = path.read_text(), path.stat()
    try:
        # Python knows bytecode by size and whole second: no two mutants of a file may share both.
        time.sleep(1.0)
        path.write_text(text.replace(old, new))
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def fails(tests: str) -> bool:
    """Whether tests fail, in a process of their own."""
    child = os.fork()
    if not child:
        os.chdir(ROOT)
        sys.path.insert(0, str(ROOT))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        named = [f"tests/{word}" if word.endswith(".py") else word for word in shlex.split(tests)]
        os._exit(pytest.main(["-x", "-m", "not slow", "-p", "no:cacheprovider", *named]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1, 2):
        raise SystemExit(f"pytest {tests}: ends with {code}")
    return code != 0


def main(wanted: list[str]) -> int:
    """Run mutants by name, all by default; the number of survivors."""
    whole, found = cache(fails), {}
    for name, tests, path, old, new in chosen(wanted):
        if whole(tests):
            raise SystemExit(f"{tests}: fail without a mutant")
        with changed(path, old, new):
            found[name] = fails(tests)
        print("killed  " if found[name] else "SURVIVED", f"{name}: {old} => {new}", flush=True)
    survivors = [name for name, killed in found.items() if not killed]
    print(f"{len(found) - len(survivors)} of {len(found)} killed", *survivors)
    return len(survivors)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
