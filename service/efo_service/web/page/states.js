// The states of a shard, as /map names them: the label, the mark that tells them without colour, and how bad they are.

const STATES = [
  // name, label, mark, severity (higher is worse), meaning
  ["no_lease", "lease lost", "✖", 9, "the lease could not be renewed, and no other worker is known to read it"],
  ["frozen", "frozen", "✖", 8, "the subscription is open, and nothing has arrived for 10 s"],
  ["disconnected", "disconnected", "✖", 7, "there has been no subscription for 10 s"],
  ["uncommitted", "not committed", "✖", 7, "the sink has not taken for 5 s what was read"],
  ["unread", "unread", "▲", 6, "for 10 s the sink has taken nothing (back-pressure)"],
  ["isolated", "isolated", "◆", 5, "it failed or was released, and no worker is known to read it"],
  ["ready", "ready", "◇", 4, "it may start, and no worker reads it yet"],
  ["paused", "paused", "‖", 3, "an operator or the application paused it"],
  ["handing_over", "handing over", "⇄", 2, "another worker takes it without repeating anything"],
  ["current", "reading", "●", 1, "this service reads it"],
  ["other_worker", "other worker", "○", 1, "another worker holds its lease"],
  ["waiting_parent", "waits for parent", "…", 1, "it starts when its parents are read to their end"],
  ["no_lease_yet", "no lease yet", "·", 1, "the end of its parents creates its lease"],
  ["finished", "finished", "✓", 0, "it was read to its end"],
];

export const BY_NAME = new Map(STATES.map(([name, label, mark, severity, meaning]) => [
  name, { name, label, mark, severity, meaning },
]));
// How late a shard is, from 0 (a second or less) to 1 (a minute or more), by the logarithm.
export function lateness(shard) {
  return shard.lag === null ? 0 : Math.min(1, Math.max(0, Math.log10(Math.max(shard.lag, 1)) / Math.log10(60)));
}

// The worst first: by state, then by lag, then the busiest.
export function worst(one, other) {
  return stateOf(other).severity - stateOf(one).severity || (other.lag ?? 0) - (one.lag ?? 0)
    || (other.records ?? 0) - (one.records ?? 0) || (one.id < other.id ? -1 : 1);
}

export const ORDER = STATES.map(([name]) => name);

export function stateOf(shard) {
  return BY_NAME.get(shard.state) ?? { name: "unknown", label: shard.state, mark: "?", severity: 5, meaning: "" };
}

// The state of the subscription. A shard without one is polled by GetRecords.
export function subscriptionOf(shard) {
  if (shard.read_mode !== "polling") return shard.subscription ?? "–";
  return shard.subscription === "live" ? "polled" : `polled, ${shard.subscription}`;
}
