// Words and numbers. Whatever a client may have written goes into the page as text, never as markup.
"use strict";

const byId = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Plotly reads <b>, <a> and the like in its labels, so they must not look like markup there
function label(text, most = 40) {
  const line = String(text).replace(/\s+/g, " ");
  const short = line.length > most ? line.slice(0, most - 1) + "…" : line;
  return short.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// and back: what `label` made harmless for Plotly is shown elsewhere as it was
const plain = (made) => made.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

const percent = (value, digits = 1) => (value == null ? "—" : `${(100 * value).toFixed(digits)} %`);

function number(value) {
  if (value == null || Number.isNaN(value)) return "—";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e5) return value.toExponential(1).replace("e-", " × 10⁻").replace("e+", " × 10⁺").replace(/(?<=[⁻⁺])\d+/, raised);
  return String(Number(value.toPrecision(4)));
}

const raised = (digits) => [...digits].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

const signed = (value) => (value == null ? "—" : (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2));

const role = (client) => ({ true: "malicious", false: "benign", null: "unknown" })[String(client.malicious)];

// {kind, shape, data} → one typed array per row
function unpacked(packed) {
  const [rows, columns] = packed.shape;
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at); // ten times as fast as Uint8Array.from
  const values = packed.kind === "u1" ? bytes : new Float32Array(bytes.buffer);
  return Array.from({ length: rows }, (_, row) => values.subarray(row * columns, (row + 1) * columns));
}

const known = (value) => (Number.isNaN(value) ? null : value);
