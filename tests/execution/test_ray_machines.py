"""Executions on several machines: Ray's nodes in network namespaces with clocks of their own."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from executed_support import quick

from collapipe_env.cli.main import main

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
RATE_MBIT = 20
HERE, THERE = "10.77.0.1", "10.77.0.2"
"""Addresses of two namespaces that the tests make."""
LEAD_S = 86_400
"""Lead of the second machine's monotonic clock [s]."""
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}


def sh(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@pytest.fixture
def spaces():
    """Two namespaces with a link that lets so many bits a second through."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux and root")
    if not all(map(shutil.which, ("ip", "tc", "unshare"))):
        pytest.skip("network namespaces need ip, tc and unshare, of the packages iproute2 and util-linux")
    names = [f"cp{os.getpid()}{side}" for side in "ab"]
    links = [f"v{name}" for name in names]
    try:
        try:
            sh("unshare", "--time", "--monotonic", "1", "true")
            for name in names:
                sh("ip", "netns", "add", name)
            sh("ip", "link", "add", links[0], "type", "veth", "peer", "name", links[1])
            for name, link, address in zip(names, links, (HERE, THERE), strict=True):
                inside = ("ip", "netns", "exec", name)
                sh("ip", "link", "set", link, "netns", name)
                sh(*inside, "ip", "address", "add", f"{address}/24", "dev", link)
                sh(*inside, "ip", "link", "set", "lo", "up")
                sh(*inside, "ip", "link", "set", link, "up")
                shape = ("rate", f"{RATE_MBIT}mbit", "burst", "32kb", "latency", "400ms")
                sh(*inside, "tc", "qdisc", "add", "dev", link, "root", "tbf", *shape)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no namespaces here: {error.stderr.decode().strip()}")
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:  # links go with them
            subprocess.run(("ip", "netns", "del", name), capture_output=True, timeout=30, check=False)


@contextlib.contextmanager
def cluster(folder, insides, addresses, **variables):
    """Nodes of Ray, labelled a and b; yields the environment of a driver, and the nodes' processes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    env = {**env, "HOME": str(folder), "RAY_AUTH_MODE": "disabled", **variables}
    nodes = []
    common = ["--block", "--num-cpus", "1", "--object-store-memory", "200000000", "--disable-usage-stats"]
    with contextlib.ExitStack() as stack:
        for number, (inside, address) in enumerate(zip(insides, addresses, strict=True)):
            which = (
                ["--address", f"{addresses[0]}:6391"]
                if number
                else ["--head", "--port", "6391", "--include-dashboard", "false"]
            )
            log = stack.enter_context((folder / f"{number}.log").open("wb"))
            where = ["--node-ip-address", address, "--labels", f"collapipe={'ab'[number]}"]
            words = [*inside, sys.executable, "-m", "ray.scripts.scripts", "start", *which, *where, *common]
            process = subprocess.Popen(words, stdout=log, stderr=log, env=env)
            stack.callback(process.wait, 60.0)
            stack.callback(process.terminate)
            nodes.append(process)
            wait_for(folder / f"{number}.log", b"Ray runtime started", process)
        yield env, nodes


def wait_for(file, words, process, seconds=120.0):
    """Wait until a process has written words into its log."""
    deadline = time.monotonic() + seconds
    while words not in file.read_bytes():
        assert process.poll() is None, file.read_text()
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.2)


def executed(folder, inside, env, scenario, clock, *given, meanwhile=lambda *_: None):
    """Run the command on the first machine; returns its status and what it said.

    Args:
        meanwhile: Called with every line that it says.
    """
    folder.mkdir()
    (folder / "scenario.yaml").write_text(scenario.to_yaml())
    words = [sys.executable, "-m", "collapipe_env", "execute", "--engine", "ray", "--clock", clock]
    words += ["--ray-address", f"{HERE}:6391", "--scenario", str(folder / "scenario.yaml")]
    words += ["--scheduler", "pipeline", "--rounds", "2", "--out", str(folder / "run"), *given]
    with subprocess.Popen(
        [*inside, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            meanwhile(line)
        return process.wait(60.0), "".join(said)


def rounds(folder):
    return json.loads((folder / "run" / "execution.json").read_text())["rounds"]


def test_machines_that_others_can_reach_must_ask_for_a_token(spaces, tmp_path):
    with cluster(tmp_path, spaces, [HERE, THERE]) as (env, _):
        status, said = executed(tmp_path / "open", spaces[0], env, quick(), "virtual")
    assert status == 2
    assert f"the Ray at {HERE}, {THERE} can be reached from other machines and asks for no token" in said
    assert "RAY_AUTH_MODE=token" in said


def test_machines_train_the_same_and_take_the_priced_times_though_their_clocks_differ(spaces, tmp_path):
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 16})
    (tmp_path / "scenario.yaml").write_text(scenario.to_yaml())
    given = ["--scenario", str(tmp_path / "scenario.yaml"), "--scheduler", "pipeline", "--rounds", "2"]
    assert main(["execute", *given, "--out", str(tmp_path / "inline")]) == 0
    # Without emulation, rounds take as long as the link to the second machine needs.
    large = scenario.with_overrides({"learning.proxy.width": 64, "learning.proxy.feedforward": 256})
    later = [*spaces[1], "unshare", "--time", "--monotonic", str(LEAD_S)]
    places = "--place", "c0*=a", "c1*=b"
    with cluster(tmp_path, [spaces[0], later], [HERE, THERE], **TOKEN) as (env, _):
        for name, plan, clock in (
            ("virtual", scenario, "virtual"),
            ("wall", scenario, "wall"),
            ("none", large, "none"),
        ):
            status, said = executed(tmp_path / name, spaces[0], env, plan, clock, *places)
            assert status == 0, said
        _, said = executed(tmp_path / "no", spaces[0], env, scenario, "virtual", "--place", "c1d1=hall")
        assert "ray start --labels collapipe=hall" in said
        assert "Traceback" not in said
    found, expected = (np.load(tmp_path / name / "weights.npz") for name in ("virtual/run", "inline"))
    assert all(np.array_equal(found[name], expected[name]) for name in expected.files)
    for one in rounds(tmp_path / "wall"):
        bound_s = one["clock_bound_s"]
        assert 0.0 < bound_s < 1.0
        for cluster_ in one["clusters"]:
            # By two machines' clocks, nothing is earlier than the bound allows, and nothing is a day late.
            assert -bound_s < cluster_["late_most_s"] < LEAD_S / 10.0
            assert cluster_["step_measured_s"] > cluster_["step_priced_s"] - bound_s
        assert one["delay_measured_s"] == pytest.approx(one["delay_priced_s"], rel=0.02)
    assert "clocks within" in (tmp_path / "wall" / "run" / "table.md").read_text()
    # In the second round a cluster is sent weights and two moments, and sends them back.
    with np.load(tmp_path / "none" / "run" / "weights.npz") as found:
        size = sum(found[name].nbytes for name in found.files if name.startswith("model/"))
    least_s = 2 * 3 * size * 8 / (RATE_MBIT * 1e6)
    assert rounds(tmp_path / "none")[1]["delay_measured_s"] >= 0.9 * least_s


def test_when_a_machine_ends_its_devices_come_back_on_the_others(spaces, tmp_path):
    scenario = quick(**{"cluster.devices": 2, "workload.batch_size": 16})
    # Whatever runs there ends with the first process of its namespace.
    there = [*spaces[1], "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with cluster(tmp_path, [spaces[0], there], [HERE, THERE], **TOKEN) as (env, nodes):

        def kill(said):
            if said.startswith("round 1 "):
                nodes[1].kill()

        given = "--place", "c0=a", "c1=a", "--rounds", "3"
        status, said = executed(tmp_path / "run", spaces[0], env, scenario, "wall", *given, meanwhile=kill)
        assert status == 0, said
    assert nodes[1].poll() == -signal.SIGKILL
    last = rounds(tmp_path / "run")[2]
    assert last["delay_measured_s"] == pytest.approx(last["delay_priced_s"], rel=0.02)
