// What the service reported last: a snapshot of all streams, kept up to date with its changes.

const KEPT_EVENTS = 200;

export class Model {
  constructor() {
    this.streams = [];
  }

  replace(snapshot) {
    this.streams = snapshot.streams.map((stream) => ({ ...stream, shards: joined(stream) }));
  }

  // Returns the ids of the shards that changed, per stream.
  change(changes) {
    return changes.streams.map((change, index) => {
      const stream = this.streams[index];
      const byId = new Map(stream.shards.map((shard) => [shard.id, shard]));
      for (const live of change.live) Object.assign(byId.get(live.id), EMPTY, live);
      const { places, live, events, ...rest } = change;
      Object.assign(stream, rest);
      stream.events = [...stream.events, ...events].slice(-KEPT_EVENTS);
      return new Set(live.map((shard) => shard.id));
    });
  }
}

// What a message leaves out is not known.
const EMPTY = {
  worker: null, subscription: null, checkpoint: null, lag: null, records: null, bytes: null, event_age: null,
  saved_age: null, error: null,
};

function joined(stream) {
  const live = new Map(stream.live.map((shard) => [shard.id, shard]));
  const shards = stream.places.map((place) => ({ ...place, ...EMPTY, ...live.get(place.id), children: [] }));
  const byId = new Map(shards.map((shard) => [shard.id, shard]));
  for (const shard of shards) for (const parent of shard.parents) byId.get(parent)?.children.push(shard.id);
  return shards;
}
