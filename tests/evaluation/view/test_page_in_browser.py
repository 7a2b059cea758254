"""The page of a finished run in a browser: what it shows, how it fits, and that it answers."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from view_support import HOSTILE, compared, data_of

from collapipe_env import write_page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is on the path")
PROBES = Path(__file__).parent / "view_probes.js"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return compared(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    return write_page(run)


def dom(page: Path, place: str, folder: Path) -> str:
    """The document after its script has run."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000", "--dump-dom"]
    command.append(f"{page.as_uri()}{place}")
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def probed(page: Path, probe: str, place: str, folder: Path, width: int = 1366) -> dict:
    """What a function of the probes, run in the page, told in a window of some width."""
    # The policy would refuse the probe, as it should.
    text = re.sub("<meta http-equiv[^>]*>", "", page.read_text())
    script = f"{{ {PROBES.read_text()} {probe}(); }}"
    (folder / "probed.html").write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    frame = f'<iframe width="{width}" height="6000" style="border:0" src="probed.html{place}"></iframe>'
    told = "addEventListener('message', e => document.getElementById('told').textContent = e.data)"
    (folder / "frame.html").write_text(f'{frame}<pre id="told"></pre><script>{told}</script>')
    (found,) = re.findall(r'<pre id="told">(.*?)</pre>', dom(folder / "frame.html", "", folder), re.S)
    return json.loads(found.replace("&amp;", "&"))


@pytest.mark.parametrize(
    ("name", "place"), [("small", "#round=3&scheduler=asteroid"), ("small-wild", "#round=5&scheduler=dssra")]
)
def test_a_browser_shows_it(run: Path, name: str, place: str, tmp_path: Path) -> None:
    out = write_page(run, tmp_path / "page.html", scenario=f"@{name}{HOSTILE}")
    document = dom(out, place, tmp_path)
    (head,) = re.findall(r"<html[^>]*>", document)
    assert 'data-state="ready"' in head
    assert "data-fault" not in head
    data, (number, scheduler) = data_of(out), re.findall("round=(.)&scheduler=(.*)", place)[0]
    (detail,) = [detail for detail in data["details"] if detail["name"] == scheduler]
    assert f"{detail['title']}, round {number}: delay" in document
    assert document.count('class="chart"') == len(data["charts"]) == 6
    assert document.count('class="nodes"') == document.count('class="map"') == 2
    (bars,) = re.findall(r'data-bars="(\d+)"', document)
    clusters = detail["rounds"][int(number) - 1]["clusters"]
    assert int(bars) == sum(len(c["events"][0]) for c in clusters) > 0
    assert document.count('class="device"') == sum(sum(c["there"]) for c in clusters)
    assert "<img" not in document
    tables = re.findall(r'data-table="(\w+)".*?</table>', document, re.S)
    assert tables == ["clusters", "schedulers", "episodes"]


@pytest.mark.parametrize("width", [390, 1366])
def test_it_fits_phones_and_screens_without_words_on_words(run: Path, width: int, tmp_path: Path) -> None:
    for name in ("small", "small-wild"):
        out = write_page(run, tmp_path / "page.html", scenario=f"@{name}{HOSTILE}")
        told = probed(out, "fits", "#round=2", tmp_path, width)
        assert told == {"inner": width, "wide": width, "wrong": []}


def test_keys_buttons_tables_and_charts_work(page: Path, tmp_path: Path) -> None:
    told = probed(page, "answers", "#round=2&scheduler=dssra", tmp_path)
    assert told["seen"] == [2, 3, 4, 3, 5, 5, 1, 5, 5, "#round=5&scheduler=dssra"]
    assert told["up"] == sorted(told["up"])
    assert told["down"] == told["up"][::-1]
    assert len(told["up"]) == 6
    assert (told["lines"], told["fewer"]) == (18, 12)
    assert told["by"] == [False, True]
    assert told["played"] > 1


def test_the_policy_refuses_other_scripts(page: Path, tmp_path: Path) -> None:
    probe = "<script>document.body.append('foreign script ran')</script></body>"
    (tmp_path / "probed.html").write_text(page.read_text().replace("</body>", probe))
    document = dom(tmp_path / "probed.html", "", tmp_path)
    assert document.count("foreign script ran") == 1
    assert "data-fault" in document
