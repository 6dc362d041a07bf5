// Numbers as text.

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 60) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${(value / 1000).toFixed(0)}k`;
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  for (const unit of ["B", "kB", "MB"]) {
    if (value < 1000) return `${unit === "B" ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} GB`;
}

// shardId-000000000012 -> 12; the whole id is always in the details and in the table.
export function shortId(id) {
  const number = /^shardId-0*(\d+)$/.exec(id);
  return number ? number[1] : id;
}

export function share(value) {
  const percent = value * 100;
  return `${percent >= 10 ? percent.toFixed(0) : percent.toPrecision(2)} %`;
}

export function hashKey(share) {
  const top = Math.round(share * 0x10000);
  return top >= 0x10000 ? "2¹²⁸" : `${top.toString(16).padStart(4, "0")}…`;
}

export function time(epochSeconds) {
  return new Date(epochSeconds * 1000).toLocaleTimeString([], { hour12: false });
}
