"""Executions over several network namespaces, joined by links of a limited rate, as over several machines."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from executed_support import quick
from threaded_execution import ThreadedExecution

from collapipe_env.schedulers import SCHEDULERS

ROOT = Path(__file__).parents[2]
RATE_MBIT = 20
LAUNCHER, CLUSTERS = "10.77.0.1", "10.77.0.2"
"""Addresses of two namespaces that the tests make: the launcher's and server's, and the clusters'."""
ROLES = ("server", *(f"c{n}{d}" for n in range(2) for d in ("", "d0", "d1")))


def sh(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@pytest.fixture
def spaces():
    """Two namespaces with a link that lets so many bits a second through."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux and root")
    if not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("network namespaces need ip and tc, of the package iproute2")
    names = [f"cp{os.getpid()}{side}" for side in "ab"]
    links = [f"v{name}" for name in names]
    try:
        try:
            for name in names:
                sh("ip", "netns", "add", name)
            sh("ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1])
            for name, link, address in zip(names, links, (LAUNCHER, CLUSTERS), strict=True):
                inside = ("ip", "netns", "exec", name)
                sh("ip", "link", "set", link, "netns", name)
                sh(*inside, "ip", "address", "add", f"{address}/24", "dev", link)
                sh(*inside, "ip", "link", "set", "lo", "up")
                sh(*inside, "ip", "link", "set", link, "up")
                shape = ("rate", f"{RATE_MBIT}mbit", "burst", "32kb", "latency", "400ms")
                sh(*inside, "tc", "qdisc", "add", "dev", link, "root", "tbf", *shape)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield names
    finally:
        for name in names:  # links go with them
            subprocess.run(("ip", "netns", "del", name), capture_output=True, timeout=30, check=False)


def played(spaces, folder, scenario, clock, lead_s=0):
    """Play two rounds with server and launcher in one namespace, and the clusters in the other.

    The monotonic clock of the clusters' machine is ``lead_s`` ahead.
    """
    folder.mkdir()
    token, file = folder / "token", folder / "scenario.yaml"
    token.write_text("0123456789abcdef" * 2)
    file.write_text(scenario.to_yaml())
    options = {"env": {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, "text": True}
    command = [sys.executable, "-m", "collapipe_env", "execute", "--token-file", str(token)]
    given = ["--scenario", str(file), "--scheduler", "pipeline", "--clock", clock, "--rounds", "2"]
    given += ["--out", str(folder / "run")]
    with contextlib.ExitStack() as stack:
        processes = []

        def start(space, *words, shifted=()):
            inside = ["ip", "netns", "exec", space, *shifted, *command, *words]
            process = subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
            processes.append(process)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        first = start(spaces[0], *given, "--serve", f"{LAUNCHER}:0")
        address = next(line.split()[2] for line in first.stdout if line.startswith("waiting at "))
        for role in ROLES:
            here = role == "server"
            bind = LAUNCHER if here else CLUSTERS
            shifted = ["unshare", "--time", "--monotonic", str(lead_s)] if lead_s and not here else []
            start(
                spaces[0 if here else 1], "--join", address, "--role", role, "--bind", bind, shifted=shifted
            )
        deadline = time.monotonic() + 400.0
        told = [
            process.communicate(timeout=max(deadline - time.monotonic(), 1.0))[0] for process in processes
        ]
        assert [process.returncode for process in processes] == [0] * len(processes), told
    return json.loads((folder / "run" / "execution.json").read_text())["rounds"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_namespaces_train_the_same_and_take_as_long_as_their_link(spaces, tmp_path):
    scenario = quick(
        **{
            "cluster.devices": 2,
            "workload.batch_size": 16,
            "learning.proxy.width": 64,
            "learning.proxy.feedforward": 256,
        }
    )
    execution = ThreadedExecution(scenario, SCHEDULERS.get("pipeline")(scenario))
    delays = [execution.play()[1]["delay_s"] for _ in range(2)]
    execution.close()
    rounds = played(spaces, tmp_path / "virtual", scenario, "virtual")
    assert [one["delay_measured_s"] for one in rounds] == delays
    model, head = execution.federation.common_model
    with np.load(tmp_path / "virtual" / "run" / "weights.npz") as found:
        for part, module in (("model", model), ("head", head)):
            for name, parameter in module.named_parameters():
                assert np.array_equal(found[f"{part}/{name}"], parameter.detach().numpy())
    # In the second round both clusters are sent weights and two moments, and send them back; the two
    # directions of the link do not share its rate.
    rounds = played(spaces, tmp_path / "measured", scenario, "none")
    size = sum(parameter.detach().numpy().nbytes for parameter in model.parameters())
    least_s = 2 * 2 * 3 * size * 8 / (RATE_MBIT * 1e6)
    assert rounds[1]["delay_measured_s"] >= 0.9 * least_s


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_namespaces_whose_clocks_differ_by_a_day_take_the_priced_times(spaces, tmp_path):
    lead_s = 86_400
    if subprocess.run(["unshare", "--time", "--monotonic", "1", "true"], check=False).returncode != 0:
        pytest.skip("time namespaces need Linux 5.6 and unshare, of the package util-linux")
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 16})
    rounds = played(spaces, tmp_path / "wall", scenario, "wall", lead_s)
    for one in rounds:
        bound_s = one["clock_bound_s"]
        assert 0.0 < bound_s < 10.0
        for cluster in one["clusters"]:
            # By two machines' clocks, nothing is earlier than the bound allows, and nothing is a day late.
            assert -bound_s < cluster["late_most_s"] < lead_s / 10.0
            assert cluster["step_measured_s"] > cluster["step_priced_s"] - bound_s
            assert cluster["delay_measured_s"] > cluster["delay_priced_s"] - bound_s
        assert one["delay_priced_s"] - bound_s < one["delay_measured_s"] < lead_s / 10.0
    table = (tmp_path / "wall" / "run" / "table.md").read_text()
    assert "clocks within" in table
