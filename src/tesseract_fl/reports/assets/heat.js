// The heat map. A picture with one pixel per cell, pinned to Plotly's axes: a thousand clients are drawn in
// milliseconds, where a heat map of Plotly's own takes a second.
"use strict";

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const LIGHTEST = -6; // powers of ten of a weight
const STEPS = 256;

const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function shades(stops) {
  return Array.from({ length: STEPS }, (_, step) => {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const low = parts(stops[Math.floor(at)]);
    const high = parts(stops[Math.ceil(at)]);
    const [red, green, blue] = low.map((value, part) => Math.round(value + (high[part] - value) * (at % 1)));
    return (255 << 24) | (blue << 16) | (green << 8) | red; // as a pixel lies in memory
  });
}

// rows of numbers → a picture as a data URL; what is not a number stays transparent
function painted(rows, low, high, stops) {
  const [width, height] = [rows[0].length, rows.length];
  const canvas = element("canvas", { width, height });
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  const pixels = new Int32Array(picture.data.buffer);
  const colours = shades(stops);
  const scale = (STEPS - 1) / (high - low || 1);
  rows.forEach((row, down) => {
    for (let across = 0; across < width; across++) {
      const step = Math.round(scale * (row[across] - low));
      if (!Number.isNaN(step)) pixels[down * width + across] = colours[Math.max(0, Math.min(STEPS - 1, step))];
    }
  });
  context.putImageData(picture, 0, 0);
  // cells keep their edges when it is stretched; a single column has none to keep
  const [across, down] = [width > 1 ? Math.ceil(800 / width) : 1, Math.ceil(500 / height)];
  const large = element("canvas", { width: across * width, height: down * height });
  const pen = large.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(canvas, 0, 0, large.width, large.height);
  return large.toDataURL();
}

function furthest(rows) {
  let most = 0;
  for (const row of rows) for (const value of row) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}

// Clients from top to bottom in `order`; a strip on the left tells roles apart where they are known. Returns what a
// place in the chart means.
function drawHeat(run, what, order) {
  const table = unpacked(run.heat[what]);
  const rows = order.map((place) => table[place]);
  const { rounds } = run.heat;
  if (!rows.some((row) => row.some((value) => !Number.isNaN(value)))) {
    draw("heat", [], {});
    return null;
  }
  const weight = what === "weight";
  const z = weight ? rows.map((row) => row.map((value) => Math.max(LIGHTEST, Math.log10(value)))) : rows;
  const stops = weight ? CIVIDIS : [colour("malicious"), colour("neutral"), colour("benign")];
  const high = weight ? 0 : furthest(z);
  const low = weight ? LIGHTEST : -high;
  const step = rounds.length > 1 ? (rounds.at(-1) - rounds[0]) / (rounds.length - 1) : 1;
  const [left, right] = [rounds[0] - step / 2, rounds.at(-1) + step / 2];
  const pin = (source, xref, x, sizex) => ({ source, xref, yref: "y", x, sizex, y: -0.5, sizey: rows.length, xanchor: "left", yanchor: "top", sizing: "stretch", layer: "below" });
  const images = [pin(painted(z, low, high, stops), "x", left, right - left)];

  const roles = order.map((place) => [ROLES.indexOf(role(run.clients[place]))]);
  const told = roles.some(([kind]) => kind < 2);
  if (told) images.push(pin(painted(roles, 0, 2, [colour("benign"), colour("malicious"), colour("line")]), "x2", 0, 1));

  const narrow = window.innerWidth < 640;
  const bar = narrow
    ? { thickness: 8, outlinewidth: 0, title: { text: what }, orientation: "h", y: -0.18, yanchor: "top" }
    : { thickness: 10, outlinewidth: 0, title: { text: what, side: "right" } };
  if (weight) Object.assign(bar, { tickvals: [-6, -4, -2, 0], ticktext: ["≤ 10⁻⁶", "10⁻⁴", "10⁻²", "1"] });
  const colorscale = stops.map((tint, place) => [place / (stops.length - 1), tint]);
  const corners = {
    type: "scatter", mode: "markers", x: [left, right], y: [-0.5, rows.length - 0.5], hoverinfo: "skip", showlegend: false,
    marker: { opacity: 0, color: [low, high], cmin: low, cmax: high, colorscale, showscale: true, colorbar: bar },
  };
  const few = rows.length <= 28 && !narrow;
  const bare = { showgrid: false, zeroline: false, ticks: "" };
  const shape = layout({
    images, hovermode: false, dragmode: "zoom",
    xaxis: { ...bare, domain: [told ? 0.022 : 0, 1], range: [left, right] },
    xaxis2: { ...bare, domain: [0, 0.014], anchor: "y", range: [0, 1], showticklabels: false, fixedrange: true },
    yaxis: {
      ...bare, anchor: told ? "x2" : "x", range: [rows.length - 0.5, -0.5], title: { text: few ? "client" : "" }, showticklabels: few,
      tickvals: few ? order.map((_, row) => row) : [], ticktext: few ? order.map((place) => label(run.clients[place].client, 14)) : [],
    },
  });
  draw("heat", told ? [corners, { ...corners, x: [0, 1], xaxis: "x2", marker: { opacity: 0 } }] : [corners], shape);
  return { z, rounds, order, left, step };
}

// The cell under the pointer: which client, and which column of the heat map, if any.
function cellAt(event, heat) {
  const chart = byId("heat");
  const inside = chart.querySelector('.nsewdrag[data-subplot="xy"]')?.getBoundingClientRect();
  if (!inside || !heat) return null;
  const along = (share, [from, to]) => from + share * (to - from);
  const row = Math.round(along((inside.bottom - event.clientY) / inside.height, chart.layout.yaxis.range));
  const round = along((event.clientX - inside.left) / inside.width, chart.layout.xaxis.range);
  if (row < 0 || row >= heat.order.length || event.clientX > inside.right || event.clientY < inside.top || event.clientY > inside.bottom) return null;
  const column = Math.floor((round - heat.left) / heat.step);
  const there = event.clientX >= inside.left && column >= 0 && column < heat.rounds.length;
  return { place: heat.order[row], row, column: there ? column : null };
}
