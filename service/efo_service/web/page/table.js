// The same shards as a table: sorted, filtered, in pages. Its rows stay the same elements, so that the focus does.

import { element, setAttribute, setText } from "./dom.js";
import { bytes, rate, seconds } from "./format.js";
import { stateOf, subscriptionOf } from "./states.js";

const PAGE = 25;
const severity = (shard) => -stateOf(shard).severity * 1e9 - (shard.lag ?? -1);
const COLUMNS = [
  // title, sort key, text, is a number
  ["Shard", (shard) => shard.id, null, false],
  ["State", severity, (shard) => `${stateOf(shard).mark} ${stateOf(shard).label}`, false],
  ["Worker", (shard) => shard.worker ?? "", (shard) => shard.worker ?? "–", false],
  ["Subscription", subscriptionOf, subscriptionOf, false],
  ["Lag", (shard) => -(shard.lag ?? -1), (shard) => seconds(shard.lag), true],
  ["Records/s", (shard) => -(shard.records ?? -1), (shard) => rate(shard.records), true],
  ["Bytes/s", (shard) => -(shard.bytes ?? -1), (shard) => bytes(shard.bytes), true],
  ["Saved", (shard) => -(shard.saved_age ?? -1), (shard) => (shard.saved_age === null ? "–" : `${seconds(shard.saved_age)} ago`), true],
  ["Generation", (shard) => shard.generation, (shard) => String(shard.generation), true],
  ["Checkpoint", (shard) => shard.checkpoint ?? "", (shard) => shard.checkpoint ?? "–", false],
];

export class ShardTable {
  constructor(table, { filter, previous, next, number, onSelect }) {
    this.sort = { column: 1, descending: false };
    this.page = 0;
    this.order = [];
    this.shards = [];
    this.hidden = new Set();
    this.selected = null;
    this.controls = { filter, previous, next, number };
    this.body = table.tBodies[0];
    this.heads = COLUMNS.map(([title, , , isNumber], index) => {
      const button = element("button", { type: "button" }, title);
      button.addEventListener("click", () => this.sortBy(index));
      return element("th", { scope: "col", class: isNumber ? "number" : null }, button);
    });
    table.tHead.append(element("tr", {}, ...this.heads));
    filter.addEventListener("input", () => { this.page = 0; this.draw(true); });
    previous.addEventListener("click", () => { this.page -= 1; this.draw(true); });
    next.addEventListener("click", () => { this.page += 1; this.draw(true); });
    this.body.addEventListener("click", (event) => {
      const id = event.target.closest("tr")?.dataset.id;
      if (id) onSelect(id);
    });
  }

  show(shards, hidden, selected) {
    const isAnew = hidden !== this.hidden || shards.length !== this.shards.length;
    Object.assign(this, { shards, hidden, selected });
    this.draw(isAnew);
  }

  sortBy(column) {
    this.sort = { column, descending: this.sort.column === column && !this.sort.descending };
    this.page = 0;
    this.draw(true);
  }

  // While the focus is in the table, its order stays: rows must not move away under the reader.
  draw(isAnew) {
    if (isAnew || !this.body.contains(document.activeElement)) this.order = this.sorted();
    const byId = new Map(this.shards.map((shard) => [shard.id, shard]));
    const found = this.order.filter((id) => byId.has(id));
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const shown = found.slice(this.page * PAGE, (this.page + 1) * PAGE);
    while (this.body.rows.length > shown.length) this.body.lastChild.remove();
    while (this.body.rows.length < shown.length) this.body.append(row());
    shown.forEach((id, index) => this.fill(this.body.rows[index], byId.get(id)));
    this.heads.forEach((head, index) =>
      setAttribute(head, "aria-sort", index !== this.sort.column ? null : this.sort.descending ? "descending" : "ascending"));
    const { previous, next, number } = this.controls;
    previous.disabled = this.page === 0;
    next.disabled = this.page >= pages - 1;
    const first = found.length ? this.page * PAGE + 1 : 0;
    setText(number, `${first} to ${this.page * PAGE + shown.length} of ${found.length}`);
  }

  sorted() {
    const key = COLUMNS[this.sort.column][1];
    const text = this.controls.filter.value.trim().toLowerCase();
    const matches = (shard) => !this.hidden.has(stateOf(shard).name) && (!text
      || [shard.id, shard.worker ?? "", stateOf(shard).label].some((field) => field.toLowerCase().includes(text)));
    const keyed = this.shards.filter(matches).map((shard) => [key(shard), shard.id]);
    keyed.sort(([a, idA], [b, idB]) => (a < b ? -1 : a > b ? 1 : idA < idB ? -1 : 1));
    if (this.sort.descending) keyed.reverse();
    return keyed.map(([, id]) => id);
  }

  fill(found, shard) {
    setAttribute(found, "data-id", shard.id);
    setAttribute(found, "class", `s-${stateOf(shard).name}${shard.id === this.selected ? " selected" : ""}`);
    COLUMNS.forEach(([, , text], index) => {
      const cell = found.cells[index];
      if (text) setText(cell, text(shard));
      else {
        setText(cell.firstChild, shard.id);
        setAttribute(cell.firstChild, "aria-pressed", shard.id === this.selected);
      }
    });
  }
}

function row() {
  return element("tr", {}, ...COLUMNS.map(([, , text, isNumber]) =>
    text ? element("td", { class: isNumber ? "number" : null })
      : element("th", { scope: "row" }, element("button", { type: "button", class: "link" }))));
}
