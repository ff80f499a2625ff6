// The page: fills the skeleton from the data it was given, or from the server that it was loaded from.
"use strict";

const FEW = 20; // rows of the client table before "show all"
const EVERY = 1000; // milliseconds between two looks at a live run
const SEVERITY = ["banned", "cut off", "suspected", "absent", "good"];
const state = { page: null, run: 0, all: false, sort: { by: "standing", down: false }, client: null, heat: null };

const current = () => state.page.runs[state.run];

function show(page) {
  state.page = page;
  byId("main").hidden = false;
  const { runs, grids } = page;
  const names = [...runs.map((run) => run.label), ...grids.map((grid) => grid.name)];
  const sizes = [counted(runs.length, "run"), counted(grids.length, "grid")].filter(Boolean).join(", ");
  byId("title").textContent = names.length === 1 ? names[0] : sizes;
  document.title = `${byId("title").textContent} — Tesseract`;
  byId("subtitle").textContent = names.length > 1 ? names.join(" · ") : runs.length ? sentence(runs[0]) : counted(grids[0].runs, "run");
  byId("command").textContent = page.command;
  byId("made").textContent = page.made;
  byId("comparison").hidden = runs.length === 0;
  byId("run").hidden = runs.length === 0;
  if (runs.length) {
    drawAccuracy(runs);
    drawLoss(runs);
    byId("comparison").hidden = byId("accuracy-card").hidden && byId("loss-card").hidden;
    if (runs.length === 1) byId("comparison").before(byId("tiles"));
    showTabs(runs);
    showRun();
  }
  showGrids(grids);
}

const counted = (count, what) => (count ? `${count} ${what}${count === 1 ? "" : "s"}` : "");

function sentence(run) {
  const { about } = run;
  if (run.kind === "federation") return `Flower federation, ${run.title}, ${counted(run.clients_in_all, "client")}`;
  return `${run.title} · ${about.data} · ${about.model} · ${about.clients.replace(/^\d+/, "$& clients")}`;
}

function showTabs(runs) {
  const nav = byId("runs");
  nav.hidden = runs.length < 2;
  nav.replaceChildren(...runs.map((run, place) => {
    const tab = element("button", { type: "button", textContent: run.label });
    tab.setAttribute("aria-pressed", String(place === state.run));
    tab.addEventListener("click", () => {
      state.run = place;
      showTabs(runs);
      showRun();
    });
    return tab;
  }));
}

function showRun() {
  const run = current();
  showTiles(run);
  drawScores(run);
  drawWeights(run);
  showHeat();
  drawDetection(run);
  drawCounts(run);
  showDetection(run);
  showClients();
  showLists(run);
  facts("about", Object.entries(run.about));
  byId("settings").textContent = run.settings;
  byId("again").textContent = run.again;
  byId("again-line").hidden = !run.again;
}

function showTiles(run) {
  const { headline } = run;
  const of = run.planned && run.planned !== run.round ? `of ${run.planned}` : run.finished ? "finished" : "";
  const tiles = [["Round", run.round, `${of}${headline.seconds == null ? "" : `${of ? ", " : ""}${Number(headline.seconds.toPrecision(2))} s each`}`]];
  if (headline.accuracy != null) tiles.unshift(["Test accuracy", percent(headline.accuracy), `best ${percent(headline.best_accuracy)}`]);
  const ours = headline.suspected_malicious == null || !headline.malicious ? "" : `, ${headline.suspected_malicious} of them malicious`;
  tiles.push(["Suspected", headline.suspected, `of all ${counted(headline.clients, "client") || "clients"} so far${ours}`]);
  if (headline.true_positive_rate != null) {
    tiles.push(["Caught per round", percent(headline.true_positive_rate, 0), `of the malicious, ${percent(headline.false_positive_rate, 0)} of the honest`]);
  }
  if (headline.malicious_weight != null) tiles.push(["Malicious weight", number(headline.malicious_weight), "of 1, all together, last round"]);
  if (headline.attack_success != null) tiles.push(["Attack success", percent(headline.attack_success), "of its targets"]);
  tiles.push(["Turned away", headline.turned_away, "updates by the gate"]);
  byId("tiles").replaceChildren(...tiles.map(([name, value, note]) =>
    element("div", { className: "tile" }, element("p", { textContent: name }), element("strong", { textContent: value }), element("p", { textContent: note || "\u00a0" }))));
}

function showDetection(run) {
  const words = {
    true_positive_rate: ["malicious clients caught, mean over rounds", percent],
    false_positive_rate: ["honest clients caught, mean over rounds", percent],
    auroc: ["AUROC of reputation, last round", number],
    malicious_weight: ["weight of the malicious clients, last round", number],
    honest_weight_lost: ["weight that honest clients lost, last round", number],
    cut_off_round: ["all cut off for the first time in round", number],
    cut_off_since: ["all cut off for good since round", number],
  };
  const told = Object.entries(words).filter(([name]) => name in run.detection);
  facts("detection-figures", told.map(([name, [title, form]]) => [title, form(run.detection[name])]));
}

function facts(id, pairs) {
  byId(id).replaceChildren(...pairs.flatMap(([name, value]) => [element("dt", { textContent: name }), element("dd", { textContent: value })]));
}

function heatOrder(run, by) {
  const places = run.clients.map((_, place) => place);
  const value = (name, place) => run.clients[place][name] ?? -Infinity;
  const heavier = (a, b) => value("weight", b) - value("weight", a) || a - b;
  if (by === "weight") return places.sort(heavier);
  if (by === "reputation") return places.sort((a, b) => value("reputation", b) - value("reputation", a) || a - b);
  if (by === "role") return places.sort((a, b) => ROLES.indexOf(role(run.clients[a])) - ROLES.indexOf(role(run.clients[b])) || heavier(a, b));
  return places.sort((a, b) => natural.compare(run.clients[a].client, run.clients[b].client));
}

const natural = new Intl.Collator("en", { numeric: true });

function showHeat() {
  const run = current();
  const select = byId("heat-what");
  const has = { reputation: run.clients.some((one) => one.reputation != null), weight: run.clients.some((one) => one.weight != null) };
  for (const option of select.options) option.disabled = !has[option.value];
  if (!has[select.value] && has.weight) select.value = "weight";
  const what = select.value;
  byId("heat-title").textContent = `${what === "weight" ? "Weight" : "Reputation"} of every client`;
  const roles = run.clients.some((one) => one.malicious === true) ? " The strip on the left: malicious clients in orange, benign ones in blue." : "";
  const part = run.clients.length < run.clients_in_all ? ` ${run.clients.length} of ${run.clients_in_all} clients are shown.` : "";
  byId("heat-note").textContent = `One row per client, one column per round${run.heat.rounds.length < run.round ? " (sampled)" : ""}; click on one for its history.${roles}${part}`;
  state.heat = drawHeat(run, what, heatOrder(run, byId("heat-sort").value));
}

function showTip(event) {
  const cell = cellAt(event, state.heat);
  const box = byId("tip");
  box.hidden = !cell;
  if (!cell) return;
  const client = current().clients[cell.place];
  const lines = [client.client.slice(0, 120), `${role(client) === "unknown" ? "" : `${role(client)}, `}${client.standing}`];
  if (cell.column != null) {
    const value = state.heat.z[cell.row][cell.column];
    const weight = `weight ${value <= LIGHTEST ? "≤ 10⁻⁶" : number(10 ** value)}`;
    const words = Number.isNaN(value) ? "took no part" : byId("heat-what").value === "weight" ? weight : `reputation ${signed(value)}`;
    lines.push(`round ${state.heat.rounds[cell.column]}: ${words}`);
  }
  box.textContent = lines.join("\n");
  box.style.left = `${Math.max(8, Math.min(event.clientX + 14, window.innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(8, Math.min(event.clientY + 14, window.innerHeight - box.offsetHeight - 8))}px`;
}

function fill(id, heads, rows) {
  const table = byId(id);
  table.tHead.replaceChildren(element("tr", {}, ...heads.map((head) =>
    (head instanceof Node ? head : element("th", { textContent: head.replace("#", ""), className: head.startsWith("#") ? "number" : "" })))));
  table.tBodies[0].replaceChildren(...rows.map((cells) => element("tr", {}, ...cells)));
}

const text = (value) => element("td", { className: "text", textContent: value });
const count = (value) => element("td", { className: "number", textContent: value });

function clientButton(name) {
  const button = element("button", { type: "button", className: "client", textContent: name === "" ? "(empty name)" : name });
  button.dataset.client = name;
  button.addEventListener("click", () => openClient(name));
  return element("td", { className: "text" }, button);
}

const COLUMNS = [
  ["client", "client", (one) => clientButton(one.client)],
  ["role", "role", (one) => element("td", {}, element("span", { className: `role ${role(one)}`, textContent: role(one) }))],
  ["standing", "standing", (one) => element("td", { textContent: one.standing })],
  ["since", "#since round", (one) => count(one.since ?? "")],
  ["weight", "#weight", (one) => count(number(one.weight))],
  ["reputation", "#reputation", (one) => count(signed(one.reputation))],
  ["penalised", "#penalised", (one) => count(`${one.penalised} of ${one.rounds}`)],
  ["rejected", "#turned away", (one) => count(one.rejected)],
];

const lower = (a, b) => (a == null ? (b == null ? 0 : -1) : b == null ? 1 : a - b);

function ranked(clients) {
  const { by, down } = state.sort;
  const key = (one) => (by === "standing" ? SEVERITY.indexOf(one.standing) : by === "role" ? role(one) : by === "since" ? one.since ?? Infinity : one[by] ?? -Infinity);
  const compare = (a, b) => {
    const [left, right] = [key(a), key(b)];
    const first = typeof left === "string" ? natural.compare(left, right) : left === right ? 0 : left - right;
    return (down ? -first : first) || lower(a.reputation, b.reputation) || natural.compare(a.client, b.client);
  };
  return [...clients].sort(compare);
}

function showClients() {
  const run = current();
  const wanted = byId("find").value.toLowerCase();
  const found = ranked(run.clients.filter((one) => `${one.client} ${one.standing} ${role(one)}`.toLowerCase().includes(wanted)));
  const rows = state.all ? found : found.slice(0, FEW);
  const told = run.clients.some((one) => one.malicious != null);
  const columns = COLUMNS.filter(([name]) => name !== "role" || told);
  const focused = document.activeElement?.dataset?.client;
  fill("clients", columns.map(([name, title]) => sortable(name, title)), rows.map((one) => columns.map(([, , cell]) => cell(one))));
  if (focused != null) [...document.querySelectorAll("#clients button.client")].find((one) => one.dataset.client === focused)?.focus();
  byId("clients-note").textContent = rows.length < found.length ? `${rows.length} of ${found.length} clients; the rest below.` : `${counted(found.length, "client") || "Nobody"}.`;
  byId("more").hidden = rows.length === found.length;
}

function sortable(name, title) {
  const button = element("button", { type: "button", textContent: title.replace("#", "") });
  const head = element("th", { className: title.startsWith("#") ? "number" : "" }, button);
  if (state.sort.by === name) head.setAttribute("aria-sort", state.sort.down ? "descending" : "ascending");
  button.addEventListener("click", () => {
    state.sort = { by: name, down: state.sort.by === name ? !state.sort.down : false };
    showClients();
  });
  return head;
}

function showLists(run) {
  byId("away-card").hidden = run.turned_away.length === 0;
  const rest = run.turned_away_in_all - run.turned_away.length;
  byId("away-note").textContent = `Turned away by the gate, ignored or absent: one line per client and reason, the latest first${rest > 0 ? `; ${rest} more are left out` : ""}.`;
  fill("away", ["client", "verdict", "reason", "#times", "#first round", "#last round", "what was said"], run.turned_away.map((one) =>
    [clientButton(one.client), text(one.verdict), text(one.code), count(one.times), count(one.first), count(one.last), element("td", { className: "text long", textContent: one.detail })]));
  byId("skipped-card").hidden = run.skipped.length === 0;
  byId("skipped-note").textContent = `${counted(run.skipped_in_all, "round")} left the model as it was${run.skipped.length < run.skipped_in_all ? `; the last ${run.skipped.length}` : ""}.`;
  fill("skipped", ["#round", "why"], run.skipped.map((one) => [count(one.round), text(one.why)]));
  byId("actions-card").hidden = run.actions.length === 0;
  fill("actions", ["time", "action", "client", "reason"], run.actions.map((one) => [text(one.time), text(one.action), clientButton(one.client), text(one.reason)]));
}

function showGrids(grids) {
  if (byId("grids").childElementCount === grids.length) return grids.forEach((grid, place) => drawGrid(`grid-${place}`, grid, byId(`grid-figure-${place}`).value));
  byId("grids").replaceChildren(...grids.map((grid, place) => {
    const select = element("select", { id: `grid-figure-${place}` }, ...grid.figures.map((one) => element("option", { value: one.figure, textContent: one.title })));
    select.addEventListener("change", () => drawGrid(`grid-${place}`, grid, select.value));
    return element("figure", { className: "card" },
      element("div", { className: "bar" }, element("h2", { textContent: `${grid.name}: attack × rule` }), element("label", {}, "Show ", select)),
      element("p", { className: "muted", textContent: `${counted(grid.runs, "run")}; each cell in per cent${grid.paper ? ", the paper's number below ours" : ""}.` }),
      element("p", { className: "muted", hidden: !grid.note, textContent: grid.note }),
      element("div", { id: `grid-${place}`, className: "chart" }));
  }));
  grids.forEach((grid, place) => drawGrid(`grid-${place}`, grid, grid.figures[0].figure));
}

// A report carries every history; a live page asks for the one that is wanted.
async function historyOf(name) {
  const run = current();
  if (!run.histories) {
    const answer = await fetch(`client?name=${encodeURIComponent(name)}`, { cache: "no-store" });
    return answer.ok ? answer.json() : null;
  }
  const row = run.clients.findIndex((one) => one.client === name);
  if (row < 0) return null;
  const { histories, heat } = run;
  const verdict = unpacked(histories.verdict)[row];
  const there = heat.rounds.map((_, place) => place).filter((place) => verdict[place] !== 0);
  const column = (packed) => { const values = unpacked(packed)[row]; return there.map((place) => known(values[place])); };
  return {
    client: name, rounds: there.map((place) => heat.rounds[place]), verdict: there.map((place) => histories.verdicts[verdict[place]]),
    score: column(histories.score), weight: column(heat.weight), reputation: column(heat.reputation), why: histories.why[row],
  };
}

async function openClient(name) {
  state.client = name;
  const history = await historyOf(name);
  const client = current().clients.find((one) => one.client === name);
  const box = byId("client");
  byId("tip").hidden = true;
  byId("client-name").textContent = `Client ${name}`;
  byId("client-facts").textContent = client
    ? `${role(client) === "unknown" ? "" : `${role(client)}, `}${client.standing}${client.since ? ` since round ${client.since}` : ""}`
    : "not among the clients that are shown here";
  byId("client-why").replaceChildren(...(history ? history.why : []).map((line) => element("li", { textContent: line.trim() })));
  if (!box.open) box.showModal();
  byId("client-chart").hidden = !history;
  if (history) drawClient(history);
}

async function follow() {
  let revision = "";
  let last = Date.now();
  const status = byId("live");
  status.hidden = false;
  for (;;) {
    const began = performance.now();
    try {
      const answer = document.hidden ? null : await fetch(`data?after=${revision}`, { cache: "no-store" });
      if (answer?.status === 200) {
        const page = await answer.json();
        revision = page.revision;
        last = Date.now();
        show(page);
        if (state.client != null && byId("client").open) await openClient(state.client);
      } else if (answer && answer.status !== 204) {
        throw new Error(await answer.text());
      }
      if (state.page) {
        const run = current();
        status.className = run.finished ? "live done" : "live";
        const ago = Math.round((Date.now() - last) / 1000);
        status.textContent = run.finished ? "finished" : `live, round ${run.round}${ago > 2 ? `, nothing new for ${ago} s` : ""}`;
      }
    } catch (error) {
      status.className = "live lost";
      status.textContent = `no answer from tesseract-fl watch: ${error.message}`;
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(EVERY, 2 * (performance.now() - began))));
  }
}

function start() {
  byId("heat-what").addEventListener("change", showHeat);
  byId("heat-sort").addEventListener("change", showHeat);
  byId("heat").addEventListener("mousemove", showTip);
  byId("heat").addEventListener("mouseleave", () => (byId("tip").hidden = true));
  byId("heat").addEventListener("click", (event) => {
    const cell = cellAt(event, state.heat);
    if (cell) openClient(current().clients[cell.place].client);
  });
  byId("find").addEventListener("input", showClients);
  byId("more").addEventListener("click", () => { state.all = true; showClients(); });
  byId("close").addEventListener("click", () => byId("client").close());
  byId("client").addEventListener("close", () => (state.client = null));
  byId("client").addEventListener("click", (event) => event.target === byId("client") && byId("client").close());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.page && show(state.page));
  const data = JSON.parse(byId("data").textContent);
  if (data.live) follow();
  else show(data);
}

start();
