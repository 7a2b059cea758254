"""The page of a finished run: what it holds, how large it gets, and that a browser shows it."""

import base64
import csv
import json
import re
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from collapipe_env import Process, evaluate, register_process, write_page
from collapipe_env.cli.main import main
from collapipe_env.dynamics import PROCESSES, CarriedArray
from collapipe_env.envs.vector import CollaPipeVectorEnv
from collapipe_env.evaluation.episode import HELD_OUT_SEED
from collapipe_env.evaluation.view.episode_detail import KINDS, REBUILT, episode_layout
from collapipe_env.ground.errors import CollaPipeError
from collapipe_env.physics.schedules.timeline import Element, gpipe_timeline
from collapipe_env.rendering.colours import PHASES
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.system import link_path_gains

HOSTILE = "</script><img src=x onerror=alert(1)>|[x](y)"
QUICK = ["--processes", "1", "--no-figures"]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is on the path")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A comparison on a still and a moving scenario, with GPipe and other schedules, and hostile names."""
    folder = tmp_path_factory.mktemp("run")
    for name in ("small", "small-wild"):
        (folder / f"{name}.yaml").write_text(f"name: {json.dumps('@' + name + HOSTILE)}\nbase: {name}\n")
    files = [str(folder / f"{name}.yaml") for name in ("small", "small-wild")]
    out = folder / "out"
    schedulers = ["dssra", "asteroid", "random"]
    options = ["--episodes", "2", "--rounds", "5", "--schedulers", *schedulers, *QUICK, "--out", str(out)]
    assert main(["compare", "--scenarios", *files, *options]) == 0
    return out


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    assert main(["view", str(run)]) == 0
    return run / "view.html"


def data_of(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found is not None
    return json.loads(found[1])


def numbers(packed: list[str]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed[1]), dtype=packed[0])


def dom(page: Path, place: str, folder: Path) -> str:
    """The document after its script has run."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={folder}", "--virtual-time-budget=3000", "--dump-dom"]
    command.append(f"{page.as_uri()}{place}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return done.stdout


def test_rounds_of_the_page_are_those_that_were_played(run: Path, page: Path) -> None:
    data = data_of(page)
    assert [d["name"] for d in data["details"]] == ["dssra", "asteroid", "random"]
    stored = json.loads((run / "summary.json").read_text())["scenarios"]
    assert data["title"].startswith(next(iter(stored)))
    lines = (run / "results.csv").read_text().splitlines()
    for detail in data["details"]:
        played = [
            line.split(",") for line in lines if line.startswith(f"'@small{HOSTILE},{detail['name']},0,0,")
        ]
        assert numbers(detail["rounds"]).tolist() == [int(line[5]) for line in played] == [1, 2, 3, 4, 5]
        delays = next(chart for chart in data["charts"] if chart["key"] == "delay")["lines"][detail["name"]]
        np.testing.assert_allclose(numbers(delays), [float(line[6]) for line in played], rtol=1e-6)
        backlog = numbers(detail["arrays"]["backlog"]).reshape(5, -1)
        np.testing.assert_allclose(backlog.sum(-1), [float(line[9]) for line in played], rtol=1e-5, atol=1e-6)
        ends = numbers(detail["arrays"]["phase_end"])
        last = np.cumsum(numbers(detail["arrays"]["phase_count"])) - 1
        # Every cluster's last phase is the broadcast, which ends the round.
        np.testing.assert_allclose(
            ends[last].reshape(5, -1), np.array([[float(line[6])] for line in played]) * [[1, 1]], rtol=1e-5
        )


def test_times_of_elements_give_the_length_of_a_local_step(page: Path) -> None:
    detail = data_of(page)["details"][0]
    arrays = {name: numbers(packed) for name, packed in detail["arrays"].items()}
    assert set(arrays["mode"]) == {REBUILT}
    phase, element = (
        np.concatenate([[0], np.cumsum(arrays[f"{n}_count"], dtype=np.int64)]) for n in ("phase", "element")
    )
    for c in range(len(arrays["mode"])):
        chain = np.reshape(detail["chains"][arrays["chain"][c]], (-1, 3))
        times = zip(
            *(arrays[f"element_{d}"][element[c] : element[c + 1]] for d in ("forward", "backward")),
            strict=True,
        )
        elements = [
            Element(
                KINDS[kind], detail["labels"][label], float(f), float(b), int(node), detail["latency"][kind]
            )
            for (kind, node, label), (f, b) in zip(chain, times, strict=True)
        ]
        ends = arrays["phase_end"][phase[c] : phase[c + 1]]
        step = arrays["phase"][phase[c] : phase[c + 1]].tolist().index(list(PHASES).index("step"))
        length = ends[step] - (ends[step - 1] if step else 0.0)
        last = gpipe_timeline(elements, int(arrays["micro_batches"][c]))[-1].end_s + elements[0].latency_s
        assert last == pytest.approx(length, rel=1e-4)


@pytest.mark.parametrize("name", ["small", "small-wild"])
def test_the_layout_is_that_of_the_episode(name: str) -> None:
    scenario = load_scenario(name)
    layout = episode_layout(scenario, 3)
    env = CollaPipeVectorEnv(num_envs=1, scenario=scenario, learner="surrogate")
    env.reset(seed=HELD_OUT_SEED + 3)
    np.testing.assert_allclose(env._mdp.world.system._base.link_gain[0], link_path_gains(layout))


def test_tables_call_schedulers_by_their_titles_and_give_energy_in_percent(run: Path, page: Path) -> None:
    tables = {table["key"]: table for table in data_of(page)["tables"]}
    of = {key: [dict(zip(t["columns"], row, strict=True)) for row in t["rows"]] for key, t in tables.items()}
    for name in ("small", "small-wild"):
        lines = [line for line in of["schedulers"] if line["scenario"].startswith(name)]
        assert lines == sorted(lines, key=lambda line: line["priced delay (s)"])
    titles = ["DSSRA", "Asteroid", "Random"] * 2
    assert sorted(line["scheduler"] for line in of["schedulers"]) == sorted(titles)
    assert [line["scheduler"] for line in of["episodes"]] == np.repeat(titles, 2).tolist()
    with (run / "episodes.csv").open() as file:
        stored = [100.0 * (float(line["worst_mean_energy_ratio"]) - 1.0) for line in csv.DictReader(file)]
    excess = [line["over budget (%)"] for line in of["episodes"]]
    np.testing.assert_allclose(excess, stored, rtol=1e-5)
    means = sorted(line["over budget (%)"] for line in of["schedulers"])
    np.testing.assert_allclose(means, sorted(np.reshape(stored, (-1, 2)).mean(-1)), rtol=1e-5)


def test_hostile_names_stay_text(run: Path, page: Path) -> None:
    text = page.read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2
    assert HOSTILE in data_of(page)["title"]
    assert "&lt;/script&gt;&lt;img" in (run / "table.md").read_text()
    assert "<" not in (run / "table.md").read_text()


def test_the_page_may_load_nothing(page: Path) -> None:
    text = page.read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    # The name of SVG's elements is not an address that is loaded.
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]


@needs_browser
def test_a_browser_shows_it(page: Path, tmp_path: Path) -> None:
    document = dom(page, "#round=3&scheduler=asteroid&check=1", tmp_path)
    (head,) = re.findall(r"<html[^>]*>", document)
    assert 'data-state="ready"' in head
    assert "data-fault" not in head
    data = data_of(page)
    # Three schedulers, five rounds, two clusters: all local steps agree with the simulator.
    assert 'data-checked="30"' in head
    assert document.count('class="chart"') == len(data["charts"]) == 6
    assert document.count('class="zoom"') == 2
    assert document.count('class="station"') == 1
    # Below both charts of nodes, cluster by cluster.
    names = re.findall(r'class="node">(\w+)<', document)
    assert names == ["CU", "d0", "d1", "d2"] * 2 * 2
    assert "Asteroid, round 3: delay" in document
    (bars,) = re.findall(r'data-bars="(\d+)"', document)
    asteroid = data["details"][1]
    counts = numbers(asteroid["arrays"]["event_count"]).reshape(5, 2)
    assert int(bars) == counts[2].sum() > 0
    assert "<img" not in document
    rows = re.findall(r'data-table="(\w+)".*?</table>', document, re.S)
    assert rows == ["clusters", "schedulers", "episodes"]


@pytest.mark.slow
@needs_browser
def test_nodes_of_large_systems_have_a_key(tmp_path: Path) -> None:
    evaluate("pipeline", scenario="large", seeds=1, rounds=1, out=tmp_path / "run")
    document = dom(write_page(tmp_path / "run"), "", tmp_path / "profile")
    assert "data-fault" not in document
    names = [
        re.sub("<svg.*?</svg>", "", each) for each in re.findall('<span class="node">(.*?)</span>', document)
    ]
    assert names == ["CU", *(f"d{k}" for k in range(8))] * 2


PROBE = """{
const press = key => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const round = () => Number(document.querySelector("input[type=range]").value), seen = [round()];
for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "PageDown"]) {
  press(key);
  seen.push(round());
}
press("Home");
const all = what => [...document.querySelectorAll(what)];
const head = all("[data-table=schedulers] th").find(th => th.textContent.startsWith("delay mean"));
const cells = () => all("[data-table=schedulers] tbody tr").map(tr => tr.children[head.cellIndex]);
const column = () => cells().map(cell => Number(cell.textContent));
head.click();
const up = column();
head.click();
const down = column(), chart = document.querySelector(".chart"), box = chart.getBoundingClientRect();
const lines = document.querySelectorAll(".chart .line").length;
document.querySelector(".key button").click();
const fewer = document.querySelectorAll(".chart .line").length;
const place = {clientX: box.right - 12, clientY: box.top + 40};
document.querySelector(".chart").dispatchEvent(new MouseEvent("click", place));
seen.push(round(), location.hash);
press("Home");
press(" ");
setTimeout(() => document.body.append(Object.assign(document.createElement("pre"), {id: "probe",
  textContent: JSON.stringify({seen, up, down, lines, fewer, played: round()})})), 500);
}"""


@needs_browser
def test_keys_buttons_tables_and_charts_work(page: Path, tmp_path: Path) -> None:
    # The policy would refuse the probe, as it should.
    text = re.sub("<meta http-equiv[^>]*>", "", page.read_text())
    (tmp_path / "probed.html").write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"))
    document = dom(tmp_path / "probed.html", "#round=2&scheduler=dssra", tmp_path / "profile")
    (told,) = re.findall(r'<pre id="probe">(.*?)</pre>', document, re.S)
    probe = json.loads(told.replace("&amp;", "&"))
    assert probe["seen"] == [2, 3, 4, 3, 5, 5, 1, 5, 5, "#round=5&scheduler=dssra"]
    assert probe["up"] == sorted(probe["up"])
    assert probe["down"] == probe["up"][::-1]
    assert len(probe["up"]) == 6
    assert (probe["lines"], probe["fewer"]) == (18, 12)
    assert probe["played"] > 1


@needs_browser
def test_the_policy_refuses_other_scripts(page: Path, tmp_path: Path) -> None:
    probe = "<script>document.body.append('foreign script ran')</script></body>"
    (tmp_path / "probed.html").write_text(page.read_text().replace("</body>", probe))
    document = dom(tmp_path / "probed.html", "", tmp_path / "profile")
    assert document.count("foreign script ran") == 1
    assert "data-fault" in document


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_devices_that_move(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "wild.html"
    name = f"@small-wild{HOSTILE}"
    chosen = ["--scenario", name, "--scheduler", "dssra", "--episode", "1"]
    assert main(["view", str(run), *chosen, "--out", str(out)]) == 0
    document = dom(out, "#round=5&check=1", tmp_path / "profile")
    (head,) = re.findall(r"<html[^>]*>", document)
    assert 'data-state="ready"' in head
    assert "data-fault" not in head
    assert "Where devices are" in document
    assert "round 5 of 5" in document


@pytest.mark.slow
def test_500_rounds_of_64_devices_stay_below_10_mb(tmp_path: Path) -> None:
    scenario = load_scenario("large").with_overrides({"name": "eight", "cluster.clusters": 8})
    assert scenario.clusters * scenario.max_devices == 64
    (tmp_path / "eight.yaml").write_text(scenario.to_yaml())
    out = tmp_path / "out"
    options = ["--episodes", "1", "--rounds", "500", "--schedulers", "dssra", "pipeline", "random", *QUICK]
    assert main(["evaluate", "--scenario", str(tmp_path / "eight.yaml"), *options, "--out", str(out)]) == 0
    assert main(["view", str(out)]) == 0
    assert (out / "view.html").stat().st_size < 10_000_000
    assert [d["every"] for d in data_of(out / "view.html")["details"]] == [1, 1, 1]


def refusal(capsys, *arguments: object) -> str:
    capsys.readouterr()
    assert main(["view", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line


def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy", ignore=shutil.ignore_patterns("view.html")))


def test_what_is_no_finished_run_is_refused(run: Path, tmp_path: Path, capsys) -> None:
    assert "there is no folder" in refusal(capsys, tmp_path / "nothing")
    assert "has no run.json" in refusal(capsys, tmp_path)
    copy = copied(run, tmp_path)
    (copy / "summary.json").unlink()
    assert "is not finished (summary.json is missing)" in refusal(capsys, copy)


def test_damaged_files_are_named(run: Path, tmp_path: Path, capsys) -> None:
    copy = copied(run, tmp_path)
    folder = next(path for path in (copy / "evaluation").iterdir() if "wild" not in path.name)
    decisions = folder / "dssra-0.npz"
    decisions.write_bytes(decisions.read_bytes()[:-140])
    assert f"{decisions} is damaged" in refusal(capsys, copy)
    decisions.unlink()
    assert f"cannot read {decisions}" in refusal(capsys, copy)
    assert not list(copy.glob("*view.html*"))


@dataclass(frozen=True)
class RainSpec:
    share: float = 0.3


class Rain(Process):
    name = "rain"
    Spec = RainSpec
    endogenous = False
    numbers = 1
    carries = MappingProxyType({"falls": CarriedArray("")})

    def begin(self, _system, u):
        return {"falls": u[:, 0] * 1.0}

    def advance(self, _carried, _state, _costs, u, _delta_s):
        return {"falls": u[:, 0] * 1.0}


def test_runs_with_a_process_of_ones_own_have_pages_from_python(tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(PROCESSES, "_added", {})
        register_process(Rain)
        scenario = {"base": "small", "dynamics": {"processes": {"rain": {"share": 0.5}}}}
        evaluate(["random", "pipeline"], scenario=scenario, seeds=2, rounds=2, out=out)
        assert write_page(str(out)) == out / "view.html"
        page = write_page(out, tmp_path / "other.html", schedulers="pipeline", episode=1)
    assert [d["name"] for d in data_of(out / "view.html")["details"]] == ["random", "pipeline"]
    assert [d["name"] for d in data_of(page)["details"]] == ["pipeline"]
    assert "held-out episode 1" in dict(data_of(page)["facts"])["shown below"]
    told = refusal(capsys, out)
    assert f"{out / 'scenario.yaml'}: " in told
    assert "process 'rain' is not known: valid names: " in told
    assert "once its file is imported: commands do that for a scenario named as file.py:Name" in told
    assert "did you mean" not in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"run": 3}, "run = 3: give a path"),
        ({"out": 3}, "out = 3: give a path"),
        ({"out": "page.png"}, "out = 'page.png': give a name that ends in .html"),
        ({"scenario": 3}, "scenario = 3: give the name"),
        ({"scenario": "nowhere"}, "scenario 'nowhere' is not in"),
        ({"schedulers": 3}, "schedulers = 3: give names"),
        ({"schedulers": ["dssra", 3]}, "give names of schedulers"),
        ({"schedulers": "nobody"}, "scheduler 'nobody' did not play"),
        ({"episode": -1}, "episode = -1: use a whole number from 0"),
        ({"episode": 2}, "episode 2 was not played by 'dssra': use a number from 0 to 1"),
    ],
)
def test_pages_that_cannot_be_written_from_python(evaluated: Path, given: dict, told: str) -> None:
    with pytest.raises(CollaPipeError, match=told):
        write_page(**{"run": evaluated, **given})


DAMAGES = {
    "a last line of five entries": lambda lines: (
        "".join(lines[:-1]) + ",".join(lines[-1].split(",")[:5]) + "\n"
    ),
    "a last entry cut short": lambda lines: "".join(lines)[:-3],
    "a line doubled": lambda lines: "".join([*lines, lines[-1]]),
    "a line lost": lambda lines: "".join([*lines[:3], *lines[4:]]),
    "a word for a number": lambda lines: "".join([*lines[:-1], lines[-1].replace(",0,1,", ",0,x,")]),
    "another scenario": lambda lines: "".join([*lines[:-1], "x" + lines[-1]]),
}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory) -> Path:
    """A small evaluation in Python, whose report holds all rounds."""
    out = tmp_path_factory.mktemp("evaluated") / "out"
    evaluate(["dssra", "random"], scenario="small", seeds=2, rounds=2, out=out)
    return out


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("several", [False, True])
def test_a_damaged_table_of_episodes_is_refused(
    run: Path, evaluated: Path, tmp_path: Path, several: bool, damage: str, capsys
) -> None:
    copy = copied(run if several else evaluated, tmp_path)
    table = copy / "episodes.csv"
    table.write_text(DAMAGES[damage](table.read_text().splitlines(keepends=True)))
    told = refusal(capsys, copy)
    assert told.startswith(f"error: {table} ")
    assert told.endswith(": run its command again, which continues from there")
    assert not list(copy.glob("*view.html*"))


def test_a_report_that_lost_an_episode_is_refused(evaluated: Path, tmp_path: Path, capsys) -> None:
    copy = copied(evaluated, tmp_path)
    report = json.loads((copy / "results.json").read_text())
    lost = report["episodes"]["random"].pop()
    (copy / "results.json").write_text(json.dumps(report))
    told = refusal(capsys, copy)
    assert f"episode {lost['episode']} of 'random' on 'small' with 2 rounds appears 1 times, not 0" in told
    del report["episodes"]
    (copy / "results.json").write_text(json.dumps(report))
    assert "results.json is damaged or of an older version ('episodes' is missing)" in refusal(capsys, copy)


def test_another_system_than_the_one_played_is_named(evaluated: Path, tmp_path: Path, capsys) -> None:
    copy = copied(evaluated, tmp_path)
    file = copy / "scenario.yaml"
    assert file.read_text().count("clusters: 2\n") == 1
    file.write_text(file.read_text().replace("clusters: 2\n", "clusters: 3\n"))
    told = refusal(capsys, copy)
    assert f"episode 0 of 'dssra' cannot be played again in {file} (" in told
    assert "this file was changed" in told
    assert "run its command again" in told
    assert file.name in refusal(capsys, copy, "--video", tmp_path / "film.gif")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ('["x"]', "kind = ['x'] is not text: run its command again"),
        (
            '"leaderboard"',
            "is a run of leaderboard, of which collapipe view makes no page: the results of",
        ),
        ('"execution"', "trace.json"),
    ],
)
def test_runs_of_another_kind_are_named(tmp_path: Path, kind: str, told: str, capsys) -> None:
    (tmp_path / "run.json").write_text(f'{{"kind": {kind}}}')
    assert told in refusal(capsys, tmp_path)


def test_decisions_that_give_other_delays_are_refused(run: Path, tmp_path: Path, capsys) -> None:
    copy = copied(run, tmp_path)
    folder = next(path for path in (copy / "evaluation").iterdir() if "wild" not in path.name)
    with zipfile.ZipFile(folder / "random-0.npz") as other:
        members = {name: other.read(name) for name in other.namelist()}
    with zipfile.ZipFile(folder / "dssra-0.npz") as own:
        members["episode.json"] = own.read("episode.json")
    with zipfile.ZipFile(folder / "dssra-0.npz", "w") as mixed:
        for name, content in members.items():
            mixed.writestr(name, content)
    assert "when it is played again, but took" in refusal(capsys, copy)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--episode", "7"), "use a number from 0 to 1"),
        (("--video", "film.avi"), "ends in .gif or .mp4"),
        (("--video", "film.gif", "--scheduler", "dssra", "random"), "one scheduler"),
        (("--fps", "0"), "0.1 to 60"),
    ],
)
def test_options_that_cannot_work_are_refused(run: Path, options, told: str, capsys) -> None:
    assert told in refusal(capsys, run, *options)


def test_a_gif_has_a_picture_for_each_frame(run: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    out = tmp_path / "episode.gif"
    assert main(["view", str(run), "--video", str(out), "--frames", "3", "--fps", "4"]) == 0
    with image.open(out) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (3, (1200, 800), 250)
        first = np.asarray(film.convert("RGB"))
        film.seek(2)
        assert (np.asarray(film.convert("RGB")) != first).any()


def test_a_video_that_cannot_be_written_names_its_option(evaluated: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    told = refusal(capsys, evaluated, "--video", tmp_path / "file" / "film.gif", "--frames", "1")
    assert told.endswith("choose another place with --video")
    told = refusal(capsys, evaluated, "--out", tmp_path / "file" / "page.html")
    assert told.endswith("choose another place with --out")


def test_mp4_needs_ffmpeg(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "needs the program ffmpeg" in refusal(capsys, run, "--video", tmp_path / "episode.mp4")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not on the path")
def test_mp4_has_a_picture_for_each_frame(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "episode.mp4"
    assert main(["view", str(run), "--video", str(out), "--frames", "3"]) == 0
    told = subprocess.run(
        ["ffmpeg", "-i", str(out), "-map", "0:v", "-f", "framemd5", "-"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len([line for line in told.stdout.splitlines() if not line.startswith("#")]) == 3


def test_evaluations_in_python_and_validations_have_pages(tmp_path: Path) -> None:
    evaluate(["dssra"], scenario="small", seeds=1, rounds=2, out=tmp_path)
    report = json.loads((tmp_path / "results.json").read_text())
    validation = {"steps": 8, "priced_delay": 9.75, "mean_delay": 9.5, "energy_ratio": 1.25}
    report["training"] = [validation, {"steps": "none"}]
    (tmp_path / "results.json").write_text(json.dumps(report))
    assert main(["view", str(tmp_path), "--out", str(tmp_path / "new" / "page.html")]) == 0
    data = data_of(tmp_path / "new" / "page.html")
    assert data["tables"][-1]["rows"] == [[8, 9.75, 9.5, 25.0]]
    assert [detail["every"] for detail in data["details"]] == [1]


def test_the_loop_of_the_page_about_it_writes_a_gif(tmp_path: Path, monkeypatch) -> None:
    image = pytest.importorskip("PIL.Image")
    page = Path(__file__).parents[2] / "docs" / "view.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {})
    with image.open(tmp_path / "rounds.gif") as film:
        assert film.n_frames == 3
    assert (page.parent / "images" / "view.png").stat().st_size < 200_000
