// Run in a page of a run by test_page_in_browser.py.
const all = what => [...document.querySelectorAll(what)], tell = told => parent.postMessage(JSON.stringify(told), "*");

// Words of pictures that are outside or on others, and the widths of window and page.
function fits() {
  setTimeout(() => {
    const wrong = [];
    for (const svg of all("main svg")) {
      const words = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBBox()]), {width, height} = svg.viewBox.baseVal;
      words.forEach(([text, a], i) => {
        if (a.x < -1 || a.x + a.width > width + 1 || a.y < -2 || a.y + a.height > height + 2) wrong.push(["outside", text]);
        for (const [other, b] of words.slice(0, i)) {
          const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x), down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
          if (across > 0.5 && down > 0.5) wrong.push([text, other]);
        }
      });
    }
    tell({inner: innerWidth, wide: document.documentElement.scrollWidth, wrong});
  }, 1500);
}

// Keys, sorted columns, a hidden line, the switch to simulated time, a click in a chart, playing.
function answers() {
  const press = key => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const round = () => Number(document.querySelector("input[type=range]").value), seen = [round()];
  for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "PageDown"]) {
    press(key);
    seen.push(round());
  }
  press("Home");
  const head = all("[data-table=schedulers] th").find(th => th.textContent === "delay (s)");
  const column = () => all("[data-table=schedulers] tbody tr").map(tr => Number(tr.children[head.cellIndex].textContent));
  head.click();
  const up = column();
  head.click();
  const down = column(), lines = all(".chart .line").length;
  document.querySelector("#key button").click();
  const fewer = all(".chart .line").length, axis = document.getElementById("axis"), timed = () => all(".chart")[0].textContent.includes("simulated time");
  const by = [timed()];
  axis.value = "s";
  axis.dispatchEvent(new Event("change"));
  by.push(timed());
  const chart = all(".chart")[0], box = chart.getBoundingClientRect();
  chart.dispatchEvent(new MouseEvent("click", {clientX: box.right - 12, clientY: box.top + 40}));
  seen.push(round(), location.hash);
  press("Home");
  press(" ");
  setTimeout(() => tell({seen, up, down, lines, fewer, by, played: round()}), 500);
}
