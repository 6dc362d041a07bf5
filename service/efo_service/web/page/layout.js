// Where the shards are on the map: columns are generations, rows are hash keys. Pure.

const GAP = 14;
const OLDER = 0.72; // each generation is this much narrower than the next one
const NARROWEST = 0.2;

// Returns the left edges of the columns, and the right edge of the last one.
export function columns(generations, width) {
  const weights = Array.from({ length: generations }, (_, index) =>
    Math.max(NARROWEST, OLDER ** (generations - 1 - index)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const edges = [0];
  for (const weight of weights) edges.push(edges.at(-1) + (weight / total) * width);
  return edges;
}

// Returns the rectangle of each shard with a known range, by id. `zoom`: the hash keys that are shown, from 0 to 1.
export function rectangles(shards, zoom, width, height) {
  const generations = shards.reduce((most, shard) => Math.max(most, shard.generation + 1), 1);
  const edges = columns(generations, width);
  const scale = height / (zoom.high - zoom.low);
  const found = new Map();
  for (const shard of shards) {
    if (shard.low === null) continue;
    const x = edges[shard.generation];
    const ends = shard.until ?? generations;
    const right = ends >= generations ? width : edges[ends] - GAP;
    const y = (shard.low - zoom.low) * scale;
    const bottom = (shard.high - zoom.low) * scale;
    found.set(shard.id, { x, y, width: Math.max(2, right - x), height: bottom - y });
  }
  return found;
}

const THIN = 6; // a shard that is lower than this shows neither its border nor its lag
const CELL = 30; // the edge of a cell, at most

// Whether the open shards are too many for rows of their own: then each is a cell, in an order of the caller.
export function isCrowded(shards, zoom, height) {
  const shown = shards.filter((shard) => !shard.children.length && shard.low !== null && shard.high > zoom.low && shard.low < zoom.high);
  return shown.length * THIN > height;
}

// Returns the cell of each shard, in their order, row by row; and how many are in a row.
export function cells(shards, width, height) {
  const edge = Math.max(4, Math.min(CELL, Math.floor(Math.sqrt((width * height) / Math.max(1, shards.length)))));
  const across = Math.max(1, Math.floor(width / edge));
  const found = new Map(shards.map((shard, index) => [shard.id, {
    x: (index % across) * edge, y: Math.floor(index / across) * edge, width: edge - 1, height: edge,
  }]));
  return { found, across };
}

// Returns the shard to which an arrow key leads among cells, or undefined.
export function neighbourCell(shards, across, current, key) {
  const index = shards.indexOf(current);
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
  return key === "Home" ? shards[0] : key === "End" ? shards.at(-1) : shards[index + steps[key]];
}

// Returns the shard to which an arrow key leads, or undefined.
export function neighbour(shards, current, key) {
  const byId = new Map(shards.map((shard) => [shard.id, shard]));
  const middle = (current.low + current.high) / 2;
  const nearest = (found) => found.filter((shard) => shard && shard.low !== null)
    .sort((a, b) => Math.abs((a.low + a.high) / 2 - middle) - Math.abs((b.low + b.high) / 2 - middle))[0];
  switch (key) {
    case "ArrowLeft": return nearest(current.parents.map((id) => byId.get(id)));
    case "ArrowRight": return nearest(current.children.map((id) => byId.get(id)));
    default: break;
  }
  const last = (shard) => (shard.until ?? Infinity) - 1;
  const beside = shards.filter((shard) => shard.low !== null && shard !== current
    && shard.generation <= current.generation && last(shard) >= current.generation);
  if (key === "ArrowDown") return beside.filter((shard) => shard.low >= current.high).sort((a, b) => a.low - b.low)[0];
  if (key === "ArrowUp") return beside.filter((shard) => shard.high <= current.low).sort((a, b) => b.low - a.low)[0];
  const open = [...byId.values()].filter((shard) => shard.low !== null && !shard.children.length)
    .sort((a, b) => a.low - b.low);
  return key === "Home" ? open[0] : key === "End" ? open.at(-1) : undefined;
}

// Returns the ids of all ancestors and descendants of a shard, and its own.
export function relatives(shards, id) {
  const byId = new Map(shards.map((shard) => [shard.id, shard]));
  const found = new Set(id ? [id] : []);
  for (const direction of ["parents", "children"]) {
    const stack = id ? [id] : [];
    while (stack.length) {
      for (const next of byId.get(stack.pop())?.[direction] ?? []) {
        if (!found.has(next)) { found.add(next); stack.push(next); }
      }
    }
  }
  return found;
}
