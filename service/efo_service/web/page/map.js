// The shard map as SVG. Its elements stay the same while a shard lives, so that the focus does.

import { element, setAttribute, setText, svg } from "./dom.js";
import { hashKey, rate, seconds, share, shortId } from "./format.js";
import { cells, isCrowded, neighbour, neighbourCell, rectangles, relatives } from "./layout.js";
import { lateness, stateOf, worst } from "./states.js";

const AXIS = 46;
const HEAD = 20;
const LABEL_HEIGHT = 13;
const TWO_LINES = 30;
const SEEN = 3; // a shard that needs attention is never thinner than this
const MAX_CURVES = 400;
const MAX_ZOOM = 1 / 4096;
const SORT_EVERY = 5000; // milliseconds: cells that move all the time cannot be read
const KEYS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"]);

export class ShardMap {
  constructor(container, { onSelect, onZoom }) {
    this.onSelect = onSelect;
    this.onZoom = onZoom;
    this.zoom = { low: 0, high: 1 };
    this.shards = [];
    this.tiles = new Map();
    this.hidden = new Set();
    this.selected = null;
    this.axis = svg("g", { class: "axis", "aria-hidden": "true" });
    this.curves = svg("g", { class: "curves", "aria-hidden": "true" });
    this.body = svg("g", {});
    this.ring = svg("rect", { class: "ring", visibility: "hidden" });
    this.svg = svg("svg", { role: "group", "aria-labelledby": "map-title", "aria-describedby": "map-help" },
      svg("defs", {}, svg("clipPath", { id: "plot" }, (this.clip = svg("rect", { x: 0, y: -2 }))), ...patterns()),
      this.axis, (this.plot = svg("g", { "clip-path": "url(#plot)" }, this.curves, this.body, this.ring)));
    container.append(this.svg);
    this.empty = element("p", { class: "quiet" }, "No shard is known yet.");
    container.append(this.empty);
    this.listen(container);
  }

  listen(container) {
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.select(event.target.closest(".tile")?.dataset.id));
    this.body.addEventListener("dblclick", (event) => this.zoomTo(event.target.closest(".tile")?.dataset.id));
    // Not on the group in the SVG: listening for focus would make the group itself focusable.
    container.addEventListener("focusin", (event) => this.select(event.target.closest(".tile")?.dataset.id));
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.scale(event.deltaY > 0 ? 1.25 : 0.8, (event.clientY - box.top - HEAD) / this.height);
    }, { passive: false });
    let drag = null;
    this.svg.addEventListener("pointerdown", (event) => { drag = { y: event.clientY, zoom: { ...this.zoom } }; });
    window.addEventListener("pointermove", (event) => {
      if (!drag || Math.abs(event.clientY - drag.y) < 4) return;
      this.move(((drag.y - event.clientY) / this.height) * (drag.zoom.high - drag.zoom.low), drag.zoom);
    });
    window.addEventListener("pointerup", () => { drag = null; });
    new ResizeObserver(() => this.draw()).observe(container);
  }

  // `hidden`: the names of the states that are filtered out.
  show(shards, hidden) {
    this.shards = shards;
    this.hidden = hidden;
    this.byId = new Map(shards.map((shard) => [shard.id, shard]));
    for (const [id, tile] of this.tiles) {
      if (!this.byId.has(id)) { tile.node.remove(); this.tiles.delete(id); }
    }
    if (!this.byId.has(this.selected)) this.selected = null;
    this.draw();
  }

  update(ids) {
    if (this.cells && Date.now() - this.sortedAt >= SORT_EVERY && !this.svg.contains(document.activeElement)) this.draw();
    else {
      this.busiest = Math.max(1, ...this.shards.map((shard) => shard.records ?? 0));
      for (const id of ids) if (this.tiles.has(id)) this.paint(this.byId.get(id));
    }
  }

  // Crowded shards are cells, the worst first.
  layOut(width) {
    this.cells = isCrowded(this.shards, this.zoom, this.height)
      ? this.shards.filter((shard) => shard.low === null || (shard.high > this.zoom.low && shard.low < this.zoom.high)).sort(worst) : null;
    this.sortedAt = Date.now();
    this.busiest = Math.max(1, ...this.shards.map((shard) => shard.records ?? 0));
    if (!this.cells) return rectangles(this.shards, this.zoom, width, this.height);
    const { found, across } = cells(this.cells, width, this.height);
    this.across = across;
    return found;
  }

  draw() {
    const width = Math.max(240, this.svg.parentElement.clientWidth - AXIS - 4);
    const open = this.shards.filter((shard) => !shard.children.length).length;
    this.height = Math.min(640, Math.max(380, open * 42));
    this.empty.hidden = this.shards.length > 0;
    this.svg.style.display = this.shards.length ? "" : "none";
    setAttribute(this.svg, "width", width + AXIS + 4);
    setAttribute(this.svg, "height", this.height + HEAD + 6);
    setAttribute(this.plot, "transform", `translate(${AXIS} ${HEAD})`);
    setAttribute(this.clip, "width", width + 4);
    setAttribute(this.clip, "height", this.height + 4);
    this.rectangles = this.layOut(width);
    for (const [id, tile] of this.tiles) setAttribute(tile.node, "display", this.rectangles.has(id) ? null : "none");
    const order = this.shards.map((shard) => [stateOf(shard).severity, shard]).sort((a, b) => a[0] - b[0]);
    const before = document.activeElement;
    for (const [, shard] of order) if (this.rectangles.has(shard.id)) this.place(shard);
    if (before && before !== document.activeElement && this.body.contains(before)) before.focus({ preventScroll: true });
    this.rove();
    this.drawAxis(width);
    this.drawCurves();
    this.drawRing();
    this.onZoom(this.zoom);
  }

  place(shard) {
    let tile = this.tiles.get(shard.id);
    if (!tile) {
      const parts = { rect: svg("rect", { rx: 2 }), first: svg("text"), second: svg("text", { class: "second" }) };
      tile = { ...parts, node: svg("g", { role: "button", tabindex: -1, "data-id": shard.id }, parts.rect) };
      this.tiles.set(shard.id, tile);
      this.body.append(tile.node);
    }
    const box = this.rectangles.get(shard.id);
    const needs = stateOf(shard).severity >= 3;
    const thin = box.height < (needs ? SEEN : 0);
    const line = box.height > 5 ? 1 : 0;
    setAttribute(tile.rect, "shape-rendering", line ? null : "crispEdges");
    setAttribute(tile.rect, "x", box.x.toFixed(1));
    setAttribute(tile.rect, "y", (thin ? box.y + box.height / 2 - SEEN / 2 : box.y).toFixed(2));
    setAttribute(tile.rect, "width", box.width.toFixed(1));
    // Thin shards overlap a little: the seams between them would be a pattern that means nothing.
    setAttribute(tile.rect, "height", (thin ? SEEN : line ? box.height - line : box.height + 0.5).toFixed(2));
    const labelled = !this.cells && box.height >= LABEL_HEIGHT && box.width >= 34;
    if (labelled !== tile.first.isConnected) labelled ? tile.node.append(tile.first) : tile.first.remove();
    const two = labelled && box.height >= TWO_LINES && box.width >= 90;
    if (two !== tile.second.isConnected) two ? tile.node.append(tile.second) : tile.second.remove();
    const top = Math.max(box.y, Math.min(0, box.y + box.height - TWO_LINES)); // a tall shard keeps its label in sight
    for (const [text, offset] of [[tile.first, two ? top + 15 : box.y + Math.min(box.height / 2 + 4, 15)], [tile.second, top + 28]]) {
      setAttribute(text, "x", (box.x + 7).toFixed(1));
      setAttribute(text, "y", offset.toFixed(1));
    }
    tile.room = box.width;
    this.paint(shard);
  }

  paint(shard) {
    const tile = this.tiles.get(shard.id);
    const state = stateOf(shard);
    setAttribute(tile.node, "class", `tile${this.cells ? " cell" : ""} s-${state.name}${this.hidden.has(state.name) ? " dim" : ""}`);
    // Colour tells lag and rate where no text does: the later the more yellow, the busier the stronger.
    const isHeated = state.name === "current" && !tile.first.isConnected;
    tile.rect.style.setProperty("--late", `${isHeated ? Math.round(100 * lateness(shard)) : 0}%`);
    const idle = shard.records === null ? 0 : 1 - Math.log1p(shard.records) / Math.log1p(this.busiest);
    tile.rect.style.setProperty("--idle", `${isHeated ? Math.round(55 * idle) : 0}%`);
    setAttribute(tile.node, "aria-label", label(shard, state));
    setAttribute(tile.node, "aria-pressed", shard.id === this.selected);
    if (tile.first.isConnected) setText(tile.first, `${state.mark} ${shortId(shard.id)}${tile.room > 150 ? `  ${state.label}` : ""}`);
    if (tile.second.isConnected) setText(tile.second, subline(shard, tile.room));
  }

  drawAxis(width) {
    const marks = [];
    if (this.cells) {
      this.axis.replaceChildren(svg("text", { x: AXIS, y: 12, class: "start" }, "each cell is a shard, the worst first: yellow is late, strong is busy"));
      return;
    }
    for (let step = 0; step <= 8; step += 1) {
      const y = (step / 8) * this.height;
      const at = this.zoom.low + (step / 8) * (this.zoom.high - this.zoom.low);
      marks.push(svg("text", { x: AXIS - 6, y: y + HEAD + (step === 8 ? 0 : 4) }, hashKey(at)));
      marks.push(svg("line", { x1: AXIS - 3, x2: AXIS, y1: y + HEAD, y2: y + HEAD }));
    }
    marks.push(svg("text", { x: AXIS, y: 12, class: "start" }, "oldest"), svg("text", { x: AXIS + width, y: 12 }, "newest generation →"));
    this.axis.replaceChildren(...marks);
  }

  drawCurves() {
    const related = relatives(this.shards, this.selected);
    const all = this.shards.length <= MAX_CURVES;
    const made = [];
    for (const shard of this.cells ? [] : this.shards) {
      const to = this.rectangles.get(shard.id);
      for (const parent of shard.parents) {
        const from = this.rectangles.get(parent);
        const marked = related.has(shard.id) && related.has(parent);
        if (!from || !to || !(all || marked)) continue;
        const [x1, y1, x2, y2] = [from.x + from.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
        const middle = (x1 + x2) / 2;
        made.push(svg("path", { class: marked ? "marked" : null, d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` }));
      }
    }
    this.curves.replaceChildren(...made);
  }

  drawRing() {
    const box = this.rectangles?.get(this.selected);
    setAttribute(this.ring, "visibility", box ? "visible" : "hidden");
    if (!box) return;
    const height = Math.max(8, box.height - 1); // to be seen, however thin the shard is
    setAttribute(this.ring, "x", box.x + 1);
    setAttribute(this.ring, "y", box.y + (box.height - height) / 2);
    setAttribute(this.ring, "width", Math.max(4, box.width - 2));
    setAttribute(this.ring, "height", height);
  }

  // One shard is in the order of Tab; the arrow keys reach the others.
  rove() {
    const first = this.selected ?? this.shards.find((shard) => !shard.children.length && this.rectangles.has(shard.id))?.id;
    for (const [id, tile] of this.tiles) setAttribute(tile.node, "tabindex", id === first ? 0 : -1);
  }

  select(id, { quiet = false } = {}) {
    if (!id || id === this.selected || !this.byId?.has(id)) return;
    const before = this.selected;
    this.selected = id;
    for (const each of [before, id]) if (this.tiles.has(each)) this.paint(this.byId.get(each));
    this.rove();
    this.drawCurves();
    this.drawRing();
    if (!quiet) this.onSelect(id);
  }

  key(event) {
    const current = this.byId?.get(event.target.closest(".tile")?.dataset.id);
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return;
    if (KEYS.has(event.key)) {
      const next = this.cells ? neighbourCell(this.cells, this.across, current, event.key) : neighbour(this.shards, current, event.key);
      if (next) { this.reveal(next); this.tiles.get(next.id)?.node.focus({ preventScroll: true }); }
    } else if (event.key === "+") this.scale(0.5, this.middle(current));
    else if (event.key === "-") this.scale(2, this.middle(current));
    else if (event.key === "0") this.zoomTo(null);
    else if (event.key === "Enter" || event.key === " ") this.zoomTo(current.id);
    else return;
    event.preventDefault();
  }

  middle(shard) {
    return ((shard.low + shard.high) / 2 - this.zoom.low) / (this.zoom.high - this.zoom.low);
  }

  reveal(shard) {
    const size = this.zoom.high - this.zoom.low;
    if (shard.low < this.zoom.low || shard.high > this.zoom.high) this.move((shard.low + shard.high) / 2 - size / 2 - this.zoom.low, this.zoom);
  }

  zoomTo(id) {
    const shard = this.byId?.get(id);
    const size = shard ? shard.high - shard.low : 1;
    const room = Math.max(size * (size > 1 / 16 ? 2 : 8), MAX_ZOOM);
    const middle = shard ? (shard.low + shard.high) / 2 : 0.5;
    this.set(middle - room / 2, room);
  }

  scale(factor, at) {
    const size = this.zoom.high - this.zoom.low;
    const fixed = this.zoom.low + at * size;
    this.set(fixed - at * size * factor, size * factor);
  }

  move(by, from) {
    this.set(from.low + by, from.high - from.low);
  }

  set(low, size) {
    size = Math.min(1, Math.max(MAX_ZOOM, size));
    low = Math.min(1 - size, Math.max(0, low));
    this.zoom = { low, high: low + size };
    this.draw();
  }
}

function label(shard, state) {
  const parts = [shard.id, state.label];
  if (shard.lag !== null) parts.push(`lag ${seconds(shard.lag)}`);
  if (shard.records !== null) parts.push(`${rate(shard.records)} records per second`);
  if (shard.worker) parts.push(`worker ${shard.worker}`);
  if (shard.low !== null) parts.push(`${share(shard.high - shard.low)} of the hash keys`);
  return parts.join(", ");
}

function subline(shard, room) {
  if (shard.lag === null && shard.records === null) return room > 150 && shard.state !== "finished" ? shard.worker ?? "" : "";
  const lag = shard.lag === null ? "" : `lag ${seconds(shard.lag)}`;
  return room > 150 && shard.records !== null ? `${lag} · ${rate(shard.records)} rec/s` : lag;
}

// Marks for states that need attention and for waiting ones, so that colour is not all that tells them.
function patterns() {
  const stripes = (id, width, line) => svg("pattern", { id, width, height: width, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width, height: width, class: "ground" }), svg("rect", { width: line, height: width, class: "line" }));
  return [stripes("bad", 8, 3), stripes("attention", 6, 2), stripes("waiting", 6, 1.5)];
}
