// Figures, problems, workers and events.

import { element, setText } from "./dom.js";
import { bytes, rate, seconds, time } from "./format.js";

const sum = (shards, field) => shards.reduce((total, shard) => total + (shard[field] ?? 0), 0);

export function showFigures(list, stream) {
  const read = stream.shards.filter((shard) => shard.subscription !== null);
  const lags = read.map((shard) => shard.lag).filter((lag) => lag !== null);
  const figures = [
    ["shards read here", String(read.length)],
    ["shards in all", String(stream.shards.length)],
    ["highest lag", lags.length ? seconds(Math.max(...lags)) : "–"],
    ["records/s", rate(sum(read, "records"))],
    ["bytes/s", bytes(sum(read, "bytes"))],
    [stream.workers.length === 1 ? "worker" : "workers", String(stream.workers.length)],
    ["lease table", stream.lease_table],
  ];
  if (list.children.length !== figures.length) {
    list.replaceChildren(...figures.map(() => element("li", {}, element("strong"), " ", element("span"))));
  }
  figures.forEach(([name, value], index) => {
    setText(list.children[index].firstChild, value);
    setText(list.children[index].lastChild, name);
  });
}

export function showProblems(box, stream) {
  const problems = stream.problems;
  box.hidden = problems.length === 0;
  const text = JSON.stringify(problems.map((problem) => problem.replace(/\d+ s\b/g, "s")));
  if (box.dataset.text === text) { // the same problems: only their seconds grow, which nobody needs to hear
    problems.forEach((problem, index) => setText(box.querySelectorAll("li")[index], problem));
    return;
  }
  box.dataset.text = text;
  box.replaceChildren(element("ul", {}, ...problems.map((problem) => element("li", {}, problem))));
}

export function showWorkers(table, stream) {
  const body = table.tBodies[0];
  while (body.rows.length > stream.workers.length) body.lastChild.remove();
  stream.workers.forEach((worker, index) => {
    const row = body.rows[index] ?? body.appendChild(element("tr", {}, element("th", { scope: "row" }), ...[0, 1, 2].map(() => element("td", { class: "number" }))));
    const own = stream.shards.filter((shard) => shard.worker === worker.id && shard.records !== null);
    const known = own.length > 0;
    const suffix = worker.id === stream.worker_id ? " (this one)" : worker.answers || stream.worker_id ? "" : " (does not answer)";
    const values = [worker.id + suffix, String(worker.shards), known ? rate(sum(own, "records")) : "–", known ? `${bytes(sum(own, "bytes"))}` : "–"];
    values.forEach((value, column) => setText(row.cells[column], value));
  });
}

export function showEvents(list, stream) {
  const key = (event) => `${event.worker}#${event.number}`;
  const newest = [...stream.events].reverse();
  if (list.dataset.newest === (newest.length ? stream.stream + key(newest[0]) + newest.length : "none")) return;
  list.dataset.newest = newest.length ? stream.stream + key(newest[0]) + newest.length : "none";
  const made = newest.map((event) => element("li", { class: `level-${event.level}` },
    element("time", { datetime: new Date(event.at * 1000).toISOString() }, time(event.at)),
    element("span", { class: "level" }, event.level), element("span", {}, event.text)));
  list.replaceChildren(...(made.length ? made : [element("li", { class: "quiet" }, "Nothing has happened yet.")]));
}
