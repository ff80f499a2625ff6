// Every chart of the page, drawn by Plotly in the colours of the style sheet.
"use strict";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const faint = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");
const ROLES = ["benign", "malicious", "unknown"];
const CALLED = { benign: "benign clients", malicious: "malicious clients", unknown: "all clients" };

function layout(more = {}) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true };
  const { xaxis, yaxis, ...rest } = more;
  return {
    margin: { l: 24, r: 12, t: 28, b: 24 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("muted") },
    showlegend: false, // the page has legends of its own, which wrap; saved pictures have Plotly's
    modebar: { bgcolor: "rgba(0,0,0,0)", color: faint(colour("muted"), 0.6), activecolor: colour("accent") },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink") } },
    uirevision: "kept", // what the reader zoomed into stays when a new round is drawn
    xaxis: { ...axis, ...xaxis, title: { text: "round", standoff: 8, ...xaxis?.title } },
    yaxis: { ...axis, ...yaxis, title: { text: "", standoff: 10, ...yaxis?.title } },
    ...rest,
  };
}

function saving(format) {
  const save = (chart) => {
    const { title } = chart.closest(".card, dialog").dataset;
    const shape = {
      ...chart.layout, showlegend: chart.dataset.legend === "yes", paper_bgcolor: colour("card"), margin: { l: 70, r: 30, t: 60, b: 60 },
      title: { text: label(title, 120), x: 0, xref: "paper", font: { size: 15, color: colour("ink") } },
      legend: { orientation: "h", x: 0, y: -0.16, yanchor: "top" },
    };
    return Plotly.downloadImage({ data: chart.data, layout: shape }, { format, filename: `tesseract-${chart.id}`, width: 1000, height: 600, scale: 2 });
  };
  return { name: `save as ${format.toUpperCase()}`, icon: Plotly.Icons[format === "png" ? "camera" : "disk"], click: save };
}

function draw(id, traces, shape) {
  const chart = byId(id);
  const card = byId(`${id}-card`);
  if (card) card.hidden = traces.length === 0;
  if (traces.length === 0) return void waiting.delete(chart);
  const holder = chart.closest(".card, dialog");
  holder.dataset.title = holder.querySelector("h2").textContent;
  showLegend(chart, traces);
  waiting.set(chart, [traces, shape]);
  if (seen.has(chart)) drawNow(chart);
  else watched.observe(chart);
}

// A chart is drawn when it comes near what is on the screen: a live page stays quick however long it is.
const waiting = new Map();
const seen = new Set();
const watched = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    if (isIntersecting) seen.add(target);
    else seen.delete(target);
    if (isIntersecting) drawNow(target);
  }
}, { rootMargin: "200px" });
window.addEventListener("beforeprint", () => [...waiting.keys()].forEach(drawNow));

// One at a time: two drawings of one chart that overlap may never come to an end.
function drawNow(chart) {
  if (chart.drawing || !waiting.has(chart)) return;
  const settings = { responsive: true, displaylogo: false, modeBarButtons: [["resetScale2d", saving("png"), saving("svg")]] };
  const [traces, shape] = waiting.get(chart);
  waiting.delete(chart);
  chart.drawing = true;
  Plotly.react(chart, traces, shape, settings).finally(() => {
    chart.drawing = false;
    if (seen.has(chart)) drawNow(chart);
  });
}

function showLegend(chart, traces) {
  const named = traces.filter((trace) => trace.type === "scatter" && trace.showlegend !== false);
  chart.dataset.legend = named.length > 1 ? "yes" : "no";
  const old = chart.previousElementSibling;
  const list = old?.className === "legend" ? old : chart.parentNode.insertBefore(element("ul", { className: "legend" }), chart);
  list.hidden = named.length < (chart.id === "client-chart" ? 1 : 2);
  list.replaceChildren(...named.map((trace) => {
    const swatch = element("span", { className: trace.fill ? "swatch filled" : trace.mode === "markers" ? "swatch dot" : "swatch" });
    swatch.style.color = trace.fillcolor || trace.marker?.color || trace.line.color;
    if (trace.line?.dash) swatch.style.borderTopStyle = "dotted";
    return element("li", {}, swatch, plain(trace.name));
  }));
}

const line = (x, y, name, colour, more = {}) => ({
  type: "scatter", mode: "lines", x, y, name, connectgaps: true, line: { color: colour, width: 2, ...more.line }, ...more.rest,
});

const runColour = (place) => colour(`run-${place % 7}`);
const times = (factor, values) => values.map((value) => (value == null ? null : factor * value));
const positive = (values) => values.map((value) => (value > 0 ? value : null));

function drawAccuracy(runs) {
  const traces = runs.flatMap((run, place) =>
    run.lines.accuracy
      ? [line(run.lines.round, times(100, run.lines.accuracy), label(run.label), runColour(place), { rest: { hovertemplate: "%{y:.1f} %" } })]
      : []);
  draw("accuracy", traces, layout({ yaxis: { title: { text: "test accuracy (%)" }, range: [0, 100] } }));
}

const LOSSES = [-4, -3, -2, -1, 0, 1, 2, 3].flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));

// Of one run test and training loss, of several the test loss, or there would be too many lines to follow.
function drawLoss(runs) {
  const alone = runs.length === 1;
  const traces = runs.flatMap((run, place) => {
    const { round, test_loss: test, train_loss: training } = run.lines;
    const name = (what) => (alone ? what : `${label(run.label)}, ${what}`);
    return [
      ...(test ? [line(round, positive(test), name("test"), runColour(place))] : []),
      ...(training && (alone || !test) ? [line(round, positive(training), name("training"), runColour(place), { line: { dash: "dot", width: 1.5 } })] : []),
    ];
  });
  draw("loss", traces, layout({ yaxis: { title: { text: "cross-entropy (nats)" }, type: "log", tickvals: LOSSES } }));
}

function spread(x, low, high, name, tint) {
  const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", connectgaps: true, legendgroup: name };
  return [
    { ...edge, y: low, showlegend: false },
    { ...edge, y: high, fill: "tonexty", fillcolor: tint, name },
  ];
}

function drawScores(run) {
  const { lines } = run;
  const traces = [];
  byId("band-note").hidden = !lines.flip_score_low; // only some rules judge by it
  if (lines.flip_score_low) traces.push(...spread(lines.round, positive(lines.flip_score_low), positive(lines.flip_score_high), "rewarded band", faint(colour("band"), 0.3)));
  for (const kind of ROLES) {
    if (!lines[`score_${kind}_mid`]) continue;
    const tint = colour(kind);
    const part = (name) => positive(lines[`score_${kind}_${name}`]);
    traces.push(...spread(lines.round, part("low"), part("high"), `${CALLED[kind]}, 5–95 %`, faint(tint, 0.18)));
    traces.push(line(lines.round, part("mid"), `${CALLED[kind]}, median`, tint, { line: { width: 1.5 }, rest: { hovertemplate: "%{y:.3g}" } }));
  }
  draw("scores", traces, layout({ yaxis: { title: { text: "flip-score (squared norm)" }, type: "log", exponentformat: "power" } }));
}

function drawWeights(run) {
  const { lines } = run;
  const traces = ROLES.filter((kind) => lines[`weight_${kind}`]).map((kind) =>
    line(lines.round, positive(lines[`weight_${kind}`]), CALLED[kind], colour(kind), { rest: { hovertemplate: "%{y:.3g} × an equal share" } }));
  const equal = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: colour("muted"), width: 1, dash: "dot" } };
  const powers = traces.flatMap((trace) => trace.y).filter((value) => value != null).map(Math.log10);
  const range = [Math.min(-1, ...powers) - 0.3, Math.max(0.7, ...powers) + 0.3]; // small differences should look small
  const shape = { shapes: [equal], yaxis: { title: { text: "mean weight (equal shares)" }, type: "log", exponentformat: "power", range } };
  draw("weights", traces, layout(shape));
}

function drawDetection(run) {
  const { lines } = run;
  const wanted = [
    ["true_positive_rate", "malicious clients caught", "malicious", {}],
    ["false_positive_rate", "honest clients caught", "benign", {}],
    ["malicious_weight", "weight of the malicious clients", "ink", { dash: "dot" }],
  ];
  const traces = wanted.filter(([name]) => lines[name]).map(([name, title, tint, dash]) =>
    line(lines.round, times(100, lines[name]), title, colour(tint), { line: { width: 1.5, ...dash }, rest: { hovertemplate: "%{y:.1f} %" } }));
  draw("detection", traces, layout({ yaxis: { title: { text: "share (%)" }, range: [-2, 102] } }));
}

function drawCounts(run) {
  const wanted = [["admitted", "admitted", "benign", {}], ["suspected", "suspected", "malicious", {}], ["turned_away", "turned away", "ink", { dash: "dot" }]];
  const traces = wanted.filter(([name]) => run.lines[name]).map(([name, title, tint, dash]) =>
    line(run.lines.round, run.lines[name], title, colour(tint), { line: { width: 1.5, ...dash } }));
  draw("counts", traces, layout({ yaxis: { title: { text: "clients" }, rangemode: "tozero" } }));
}

function drawGrid(place, grid, figure) {
  const chosen = grid.figures.find((one) => one.figure === figure);
  const words = (value) => (value == null ? "" : (100 * value).toFixed(1));
  const text = chosen.values.map((row, down) => row.map((value, across) => {
    const accuracy = figure === "accuracy";
    const paper = accuracy && grid.paper ? grid.paper[down][across] : null;
    return words(value) + (accuracy && value != null && grid.marked[down][across] ? "*" : "") + (paper == null ? "" : `<br><i>paper ${words(paper)}</i>`);
  }));
  const trace = {
    type: "heatmap", z: chosen.values.map((row) => times(100, row)), text, texttemplate: "%{text}", hoverinfo: "none", xgap: 2, ygap: 2,
    colorscale: "Cividis", zmin: 0, zmax: 100, showscale: window.innerWidth >= 640, colorbar: { thickness: 10, outlinewidth: 0, title: { text: `${chosen.title} (%)`, side: "right" } },
  };
  const ticks = (names, most) => ({ tickvals: names.map((_, at) => at), ticktext: names.map((name) => label(name, most)), showgrid: false, zeroline: false });
  const narrow = window.innerWidth < 640;
  byId(place).style.height = `${120 + grid.attacks.length * (grid.paper ? 40 : 26)}px`;
  draw(place, [trace], layout({
    hovermode: "closest",
    xaxis: { ...ticks(grid.rules, narrow ? 12 : 30), side: "top", title: { text: "" }, tickangle: narrow ? -60 : 0 },
    yaxis: { ...ticks(grid.attacks, narrow ? 16 : 44), autorange: "reversed" },
  }));
}

const SHOWN = { rewarded: "benign", admitted: "benign", penalised: "penalised", rejected: "malicious", ignored: "ignored", absent: "ignored", banned: "malicious" };
const SYMBOLS = { rejected: "x", banned: "x", penalised: "triangle-down", ignored: "circle-open", absent: "circle-open" };

function drawClient(history) {
  const { rounds } = history;
  const rows = [["reputation", "reputation", "y"], ["weight", "weight", "y2"], ["score", "flip-score", "y3"]]
    .filter(([name]) => history[name].some((value) => value != null));
  const traces = [];
  rows.forEach(([name, title, axis], place) => {
    const values = name === "reputation" ? history[name] : positive(history[name]);
    traces.push(line(rounds, values, title, faint(colour("ink"), 0.4), { line: { width: 1 }, rest: { yaxis: axis, showlegend: false, hoverinfo: "skip" } }));
    for (const verdict of new Set(history.verdict)) {
      const mine = rounds.map((_, at) => at).filter((at) => history.verdict[at] === verdict && values[at] != null);
      if (!verdict || !mine.length) continue;
      traces.push({
        type: "scatter", mode: "markers", x: mine.map((at) => rounds[at]), y: mine.map((at) => values[at]), yaxis: axis, name: verdict, legendgroup: verdict,
        showlegend: !traces.some((trace) => trace.name === verdict), hovertemplate: `round %{x}, ${verdict}: %{y:.3g}<extra></extra>`,
        marker: { size: 5, color: colour(SHOWN[verdict]), symbol: SYMBOLS[verdict] || "circle" },
      });
    }
    rows[place].domain = [1 - (place + 1) / rows.length + 0.05, 1 - place / rows.length];
  });
  const shape = layout({ hovermode: "closest", uirevision: history.client });
  for (const [name, title, axis, ] of rows) {
    const domain = rows.find(([one]) => one === name).domain;
    shape[axis.replace("y", "yaxis")] = { ...shape.yaxis, domain, title: { text: title, standoff: 10 }, type: name === "reputation" ? "linear" : "log", exponentformat: "power", nticks: 4 };
  }
  shape.xaxis.anchor = rows.length ? rows.at(-1)[2] : "y";
  draw("client-chart", traces, shape);
}
