"""Rounds whose models somebody else carries, without Flower: weights, checks, and settings."""

import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from executed_support import Changed, InProcess, failing, quick, same_weights
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from collapipe_env.execution.flower import cluster_visit, local_deployment
from collapipe_env.execution.flower.cluster_visit import play_cluster
from collapipe_env.execution.flower.federated_rounds import FederatedRounds
from collapipe_env.execution.flower.frame_records import (
    from_plain,
    is_moment,
    remaining_moments,
    require_update,
    to_plain,
    without_moments,
)
from collapipe_env.execution.flower.round_figures import largest_difference, payload_bytes, table
from collapipe_env.execution.flower.settings import ClientSettings, ServerSettings
from collapipe_env.execution.frames import Frame, FrameError, Limits, Tag
from collapipe_env.execution.head_work import HeadWork
from collapipe_env.execution.joining import ExecutionError
from collapipe_env.execution.tokens import TokenError

SIZES = {"embedding": 4, "b0": 3, "b1": 0}


def update(**arrays):
    """An update that fits the sizes, with changes; an array of None is left out."""
    usual = {
        "embedding/values": np.ones(4, dtype=np.float32),
        "b0/values": np.zeros(3, dtype=np.float32),
    }
    changed = {**usual, **{name.replace("__", "/"): array for name, array in arrays.items()}}
    return Frame("update", arrays={name: array for name, array in changed.items() if array is not None})


def played(rounds, moments):
    """Play a round with a thread a cluster; moments stay outside of the server, as at Flower's nodes."""
    commands = rounds.begin_round()
    with ThreadPoolExecutor(len(commands)) as pool:
        visits = {
            n: pool.submit(play_cluster, command, moments.get(n, {}), cluster=n)
            for n, command in commands.items()
        }
    updates = {}
    for n, visit in visits.items():
        updates[n], moments[n] = visit.result()
    return commands, updates, *rounds.end_round(updates)


@pytest.mark.parametrize(
    ("base", "changes", "rounds"),
    [
        (quick, {}, 3),
        pytest.param(quick, {"workload.update_compression": "lora"}, 2, marks=pytest.mark.slow),
        pytest.param(
            quick, {"workload.local_steps": 2, "workload.head": "common"}, 2, marks=pytest.mark.slow
        ),
        (lambda: failing(on_mean_s=20.0, recovery="light"), {"workload.local_steps": 2}, 2),
        pytest.param(
            lambda: failing(recovery="drop-round"), {"workload.local_steps": 2}, 3, marks=pytest.mark.slow
        ),
    ],
    ids=["as-it-is", "adapters", "common-head", "failures", "dropped-rounds"],
)
def test_weights_are_the_learners_to_the_bit(base, changes, rounds):
    scenario = base().with_overrides(changes)
    twin, moments, failures = InProcess(scenario, Changed(scenario), seed=3), {}, 0
    with FederatedRounds(scenario, Changed(scenario), seed=3) as federation:
        for _ in range(rounds):
            *_, planned, result = played(federation, moments)
            twin.play()
            failures += len(planned.failures)
            assert same_weights(federation.federation, twin.run)
            assert result["train_loss"] == twin.train_loss
            assert result["delay_s"] == pytest.approx(planned.record.costs.delay[0], abs=1e-9)
    assert (failures > 0) == (base is not quick)


def test_models_go_by_the_carrier_without_moments_and_heads_beside_it():
    scenario = quick()
    moments = {}
    with FederatedRounds(scenario, Changed(scenario)) as federation:
        played(federation, moments)
        federation.take_beside()
        commands, updates, *_ = played(federation, moments)
        sent, received = federation.take_beside()
        weights = sum(federation.sizes.values())
        priced = federation.priced_bits()
    clusters = scenario.cluster.clusters
    assert payload_bytes(commands) == payload_bytes(updates) == 4 * weights * clusters
    assert priced.upload == scenario.workload.weight_bits * weights
    assert all(any(is_moment(name) for name in kept) for kept in moments.values())
    # A gradient for every activation, which targets and masks come with.
    tokens = scenario.workload.batch_size * scenario.learning.proxy.sequence_length * clusters
    assert sent == 4 * tokens * scenario.learning.proxy.width
    assert received > sent


def test_rounds_are_begun_and_ended_in_turn_and_with_all_updates():
    scenario = quick()
    with FederatedRounds(scenario, Changed(scenario)) as federation:
        with pytest.raises(ExecutionError, match="no round is under way"):
            federation.end_round({})
        command = federation.begin_round()[1]
        with pytest.raises(ExecutionError, match="round 0 is under way"):
            federation.begin_round()
        with pytest.raises(FrameError, match="this client is cluster 0, and the command is for 1"):
            play_cluster(command, {}, cluster=0)
        with pytest.raises(ExecutionError, match="no update of cluster 0, 1"):
            federation.end_round({})


def test_a_command_that_lacks_a_field_is_refused_before_anything_is_begun(monkeypatch):
    scenario = quick()
    with FederatedRounds(scenario, Changed(scenario)) as federation:
        command = federation.begin_round()[1]
    monkeypatch.setattr(cluster_visit, "TcpEndpoint", None)
    assert len(command.meta) > 9
    for name in command.meta:
        rest = {field: value for field, value in command.meta.items() if field != name}
        with pytest.raises(FrameError, match=f"command of round 0 for cluster 1 lacks {name}: install"):
            play_cluster(replace(command, meta=rest), {}, cluster=1)
    with pytest.raises(FrameError, match=r"lacks cluster, script, .*, generator: install the same release"):
        play_cluster(Frame("round"), {}, cluster=1)


def test_a_server_that_fails_ends_the_clusters_rounds_too(monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr(HeadWork, "backward", fails)
    scenario = quick()
    with FederatedRounds(scenario, Changed(scenario)) as federation:
        commands = federation.begin_round()
        with ThreadPoolExecutor(len(commands)) as pool:
            visits = [pool.submit(play_cluster, c, {}, cluster=n) for n, c in commands.items()]
        for visit in visits:
            with pytest.raises(ExecutionError, match=r"server is gone|cannot be reached"):
                visit.result()
        with pytest.raises(ExecutionError, match="round 0 failed: ZeroDivisionError: on purpose"):
            federation.end_round({})


def test_a_server_with_another_token_is_not_joined():
    scenario = quick()
    with (
        FederatedRounds(scenario, Changed(scenario), token="one that is long enough") as federation,
        pytest.raises(ExecutionError, match=r"the server's head at 127.0.0.1:[0-9]+ cannot be reached"),
    ):
        play_cluster(federation.begin_round()[0], {}, cluster=0, token="another that is long enough")
    with pytest.raises(TokenError, match="is missing"):
        FederatedRounds(scenario, Changed(scenario), bind=("0.0.0.0", 0))


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    meta=st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | numbers | st.booleans(), max_size=3),
    tag=st.tuples(*[st.integers(0, 99)] * 5),
    at_s=numbers,
    values=st.lists(st.floats(width=32), max_size=5),
)
def test_frames_survive_the_way_through_records(meta, tag, at_s, values):
    arrays = {"b0/values": np.array(values, dtype=np.float32)}
    frame = Frame("update", Tag(*tag), at_s, meta, arrays)
    found = from_plain(*to_plain(frame), ["update"])
    assert (found.kind, found.tag, found.at_s, found.meta) == (frame.kind, frame.tag, frame.at_s, meta)
    assert_array_equal(found.arrays["b0/values"], arrays["b0/values"])


@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_damaged_headers_are_refused(place, value):
    _, header = to_plain(update())
    damaged = bytearray(header)
    place %= len(damaged)
    if damaged[place] == value:
        return
    damaged[place] = value
    with pytest.raises(FrameError):
        from_plain({}, bytes(damaged), ["update"])


@pytest.mark.parametrize(
    ("arrays", "header", "words"),
    [
        ({}, None, "has None instead of a header"),
        ({}, to_plain(Frame("round"))[1], "'round', expected update"),
        ({}, b"".join(local_deployment.APPS.encode() for _ in range(9)), "begins with"),
        ({}, bytes(2**20 + 1), "above 1,048,576"),
        ({"a": np.array(["text"])}, to_plain(Frame("update"))[1], "of type <U4"),
        ({"a": np.zeros(9)}, to_plain(Frame("update"))[1], "above the limit of 64"),
    ],
)
def test_foreign_messages_are_refused(arrays, header, words):
    with pytest.raises(FrameError, match=words):
        from_plain(arrays, header, ["update"], Limits(payload=64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"b0__values": None}, "b0/values and has nothing"),
        ({"b1__values": np.zeros(1, dtype=np.float32)}, "nothing and has b1/values"),
        ({"b0__values": np.zeros(4, dtype=np.float32)}, r"shape \(4,\)"),
        ({"b0__values": np.zeros(3)}, "type float64"),
        ({"b0__values": np.array([0, np.nan, 0], dtype=np.float32)}, "not finite: lower"),
    ],
)
def test_updates_that_do_not_fit_are_refused(changes, words):
    require_update(update(), SIZES, 7)
    with pytest.raises(FrameError, match=f"the update of cluster 7 .*{words}"):
        require_update(update(**changes), SIZES, 7)


def test_moments_are_kept_apart_and_those_of_lost_blocks_forgotten():
    memory = {"b0/exp_avg": np.ones(3, dtype=np.float32), "embedding/step": np.array(2, dtype=np.float32)}
    whole = update(**memory)
    rest, moments = without_moments(whole)
    assert rest.arrays.keys() == update().arrays.keys()
    assert moments == memory
    assert remaining_moments(moments, ["b0"]).keys() == {"embedding/step"}


def test_settings_of_the_written_app_are_those_that_the_server_reads(tmp_path):
    local_deployment.write_app(tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    (tmp_path / "secret").write_text("a secret of some length\n")
    given = {**config, "out": str(tmp_path), "bind": "[::1]:29500", "token-file": str(tmp_path / "secret")}
    settings = ServerSettings.of(given)
    assert settings.bind == ("::1", 29500)
    assert settings.token == "a secret of some length"
    usual = ServerSettings.of({"out": "here"})
    assert all(config[name] == getattr(usual, name) for name in ("scenario", "scheduler", "seed", "rounds"))
    components = project["tool"]["flwr"]["app"]["components"]
    for reference in components.values():
        module, _, name = reference.partition(":")
        assert name in (tmp_path / f"{module.replace('.', '/')}.py").read_text()


SHORT = "short"


@pytest.mark.parametrize(
    ("reads", "config", "words"),
    [
        (ServerSettings.of, {}, "has no out"),
        (ServerSettings.of, {"out": "x", "rounds": 0}, "rounds = 0"),
        (ServerSettings.of, {"out": "x", "rounds": "3"}, "rounds = '3'"),
        (ServerSettings.of, {"out": "x", "rounds": True}, "rounds = True"),
        (ServerSettings.of, {"out": "x", "bind": "somewhere"}, "bind = 'somewhere'"),
        (ServerSettings.of, {"out": "x", "bind": "0.0.0.0:1"}, "other machines cannot connect to"),
        (ServerSettings.of, {"out": "x", "bind": "a:70000"}, "HOST:PORT"),
        (ServerSettings.of, {"out": "x", "token-file": "/nowhere"}, "token-file /nowhere cannot be read"),
        (ServerSettings.of, {"out": "x", "token-file": "/dev/null"}, "token-file /dev/null cannot be read"),
        (ServerSettings.of, {"out": "x", "bind": f"a:{'9' * 5000}"}, "HOST:PORT"),
        (ClientSettings.of, {"cluster": 0, "token-file": SHORT}, "holds 2 characters: put at least 16"),
        (ClientSettings.of, {"partition-id": 3}, "has no cluster"),
        (ClientSettings.of, {"cluster": 0.5}, "cluster = 0.5"),
    ],
)
def test_wrong_settings_are_one_error(reads, config, words, tmp_path):
    if config.get("token-file") == SHORT:
        (tmp_path / SHORT).write_text(" ab\n")
        config = {**config, "token-file": str(tmp_path / SHORT)}
    with pytest.raises(ExecutionError, match=words):
        reads(config)


def test_without_flower_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(local_deployment.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExecutionError, match=r"pip install 'collapipe-env\[flower\]'"):
        local_deployment.LocalDeployment(tmp_path, 2, tmp_path / "token")


def test_a_program_of_flower_that_is_removed_meanwhile_is_one_clear_error(monkeypatch, tmp_path):
    monkeypatch.setattr(local_deployment, "require_flower", lambda: str(tmp_path))
    with (
        pytest.raises(ExecutionError, match="flower-superlink is not found on PATH any more: pip install"),
        local_deployment.LocalDeployment(tmp_path, 2, tmp_path / "token"),
    ):
        pass


def test_weights_of_another_model_are_no_match():
    one = {"a": np.zeros(2), "b": np.ones(3)}
    assert largest_difference(one, {"a": np.zeros(2), "b": np.array([1.0, 0.75, 1.0])}) == 0.25
    assert largest_difference(one, {"a": np.zeros(2)}) == np.inf
    assert largest_difference(one, {"a": np.zeros(3), "b": np.ones(3)}) == np.inf


def test_the_table_has_a_row_a_round():
    row = {"round": 1, "loss": None, "delay_s": 2.0, "wall_s": 3.0}
    sizes = dict.fromkeys(("down_bytes", "up_bytes", "priced_down_bytes", "priced_up_bytes"), 1024)
    lines = table([{**row, **sizes, "beside_bytes": 2048}]).splitlines()
    assert lines[2] == "| 1 | - | 2.000 | 1.0 | 1.0 | 1.0 | 1.0 | 2.0 | 3.0 |"
    assert len({line.count("|") for line in lines}) == 1
