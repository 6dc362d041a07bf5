// The page: follows the service by server-sent events, and shows one of its streams.

import { $, element, setText } from "./dom.js";
import { Details } from "./details.js";
import { share } from "./format.js";
import { showEvents, showFigures, showProblems, showWorkers } from "./lists.js";
import { ShardMap } from "./map.js";
import { Model } from "./model.js";
import { BY_NAME, ORDER } from "./states.js";
import { ShardTable } from "./table.js";

const STALE_AFTER = 6000; // milliseconds without a message, of which one comes each second

const model = new Model();
let shown = 0;
let hidden = new Set();
let lastMessage = 0;

const map = new ShardMap($("map"), { onSelect: select, onZoom: showZoom });
const details = new Details($("details"), { onSelect: select });
const table = new ShardTable($("table"), {
  filter: $("filter"), previous: $("previous"), next: $("next"), number: $("page-number"), onSelect: select,
});

function stream() {
  return model.streams[Math.min(shown, model.streams.length - 1)];
}

function select(id) {
  map.select(id, { quiet: true });
  map.reveal(map.byId.get(id));
  refresh();
}

function showZoom(zoom) {
  setText($("zoom-level"), zoom.high - zoom.low >= 1 ? "" : `${share(zoom.high - zoom.low)} of the hash keys`);
}

// What changes each second.
function refresh() {
  const current = stream();
  if (!current) return;
  setText($("stream-name"), current.stream);
  setText($("identity"), [`application ${current.application}`, current.worker_id ? `worker ${current.worker_id}` : "all workers of a supervisor", `efo ${current.version}`].join(", "));
  showFigures($("figures"), current);
  showProblems($("problems"), current);
  showLegend(current);
  table.show(current.shards, hidden, map.selected);
  details.show(current, current.shards.find((shard) => shard.id === map.selected) ?? null);
  showWorkers($("workers"), current);
  showEvents($("events"), current);
}

function redraw() {
  const streams = model.streams;
  $("chooser").hidden = streams.length < 2;
  const names = JSON.stringify(streams.map((each) => each.stream));
  if ($("stream").dataset.names !== names) {
    $("stream").dataset.names = names;
    $("stream").replaceChildren(...streams.map((each, index) => element("option", { value: index }, each.stream)));
  }
  $("stream").value = String(shown);
  if (stream()) map.show(stream().shards, hidden);
  refresh();
}

// A reload of the configuration adds and removes streams: the same one stays shown, wherever it is now.
function replace(snapshot) {
  const before = stream()?.stream;
  model.replace(snapshot);
  const index = model.streams.findIndex((each) => each.stream === before);
  if (index < 0) map.selected = null;
  shown = Math.max(0, index);
  redraw();
}

function showLegend(current) {
  const counts = new Map();
  for (const shard of current.shards) counts.set(shard.state, (counts.get(shard.state) ?? 0) + 1);
  const list = $("legend");
  const names = ORDER.filter((name) => counts.has(name) || hidden.has(name));
  if (list.dataset.names !== names.join()) {
    list.dataset.names = names.join();
    list.replaceChildren(...names.map((name) => {
      const state = BY_NAME.get(name);
      const button = element("button", { type: "button", title: state.meaning, class: `badge s-${name}`, "data-name": name });
      button.addEventListener("click", () => toggle(name));
      return element("li", {}, button);
    }));
  }
  for (const button of list.querySelectorAll("button")) {
    const state = BY_NAME.get(button.dataset.name);
    setText(button, `${state.mark} ${state.label} ${counts.get(state.name) ?? 0}`);
    button.setAttribute("aria-pressed", String(!hidden.has(state.name)));
  }
}

function toggle(name) {
  hidden = new Set(hidden);
  if (!hidden.delete(name)) hidden.add(name);
  redraw();
}

function tell(kind, text) {
  $("connection").className = `connection ${kind}`;
  setText($("connection"), text);
}

function follow() {
  const source = new EventSource("/events");
  const heard = (handle) => (event) => {
    lastMessage = Date.now();
    tell("live", "live");
    handle(JSON.parse(event.data));
  };
  source.addEventListener("snapshot", heard(replace));
  source.addEventListener("changes", heard((changes) => {
    const changed = model.change(changes)[shown];
    if (changed) map.update(changed);
    refresh();
  }));
  source.addEventListener("error", () => {
    tell("waiting", "no connection: what is shown is old; trying again");
    if (source.readyState === EventSource.CLOSED) { // refused, or the session is over: the page knows where to go
      source.close();
      setTimeout(retry, 3000);
    }
  });
}

async function retry() {
  try {
    const response = await fetch("/session");
    if (response.status === 401) { location.reload(); return; }
    if (response.ok) { follow(); return; }
  } catch { /* the service is away */ }
  setTimeout(retry, 3000);
}

async function askSession() {
  const response = await fetch("/session");
  if (!response.ok) return;
  details.session = await response.json();
  $("logout").hidden = details.session.actions !== "on";
  refresh();
}

setInterval(() => {
  if (lastMessage && Date.now() - lastMessage > STALE_AFTER) tell("waiting", "nothing new: what is shown is old");
}, 1000);
$("stream").addEventListener("change", (event) => { shown = Number(event.target.value); map.selected = null; redraw(); });
$("zoom-in").addEventListener("click", () => map.scale(0.5, 0.5));
$("zoom-out").addEventListener("click", () => map.scale(2, 0.5));
$("zoom-reset").addEventListener("click", () => map.zoomTo(null));
follow();
askSession();
