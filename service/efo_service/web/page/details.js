// One shard: everything that is known of it, and what the operator may do with it.

import { element, setText } from "./dom.js";
import { bytes, hashKey, rate, seconds, share } from "./format.js";
import { stateOf, subscriptionOf } from "./states.js";

const READ_HERE = new Set(["current", "unread", "uncommitted", "frozen", "disconnected", "paused"]);

export class Details {
  constructor(container, { onSelect }) {
    this.container = container;
    this.onSelect = onSelect;
    this.session = { actions: "off", reason: "" };
    this.shown = null;
    this.nothing = [...container.childNodes];
  }

  // `shard`: null if none is selected.
  show(stream, shard) {
    if (!shard) {
      // Nothing to act on: in another stream, a shard of the same id is another one.
      if (this.shown !== null) this.container.replaceChildren(...this.nothing);
      this.shown = null;
      return;
    }
    const key = `${stream.stream} ${shard.id}`;
    if (this.shown !== key) this.build(stream, shard);
    this.shown = key;
    const state = stateOf(shard);
    this.badge.className = `badge s-${state.name}`;
    setText(this.badge, `${state.mark} ${state.label}`);
    setText(this.meaning, state.meaning);
    const values = {
      Worker: shard.worker ?? "–",
      Subscription: subscriptionOf(shard),
      Lag: seconds(shard.lag),
      Rate: shard.records === null ? "–" : `${rate(shard.records)} records/s, ${bytes(shard.bytes)}/s`,
      "Last event": shard.event_age === null ? "–" : `${seconds(shard.event_age)} ago`,
      Checkpoint: shard.checkpoint ?? "–",
      Saved: shard.saved_age === null ? "–" : `${seconds(shard.saved_age)} ago`,
      Error: shard.error ?? "–",
      "Hash keys": shard.low === null ? "not known" : `${hashKey(shard.low)} to ${hashKey(shard.high)} (${share(shard.high - shard.low)})`,
      Kinesis: shard.is_open ? "open" : "closed",
    };
    for (const [name, text] of Object.entries(values)) {
      setText(this.values[name], text);
      this.values[name].parentElement.hidden = name === "Error" && !shard.error;
    }
    this.allow(shard);
  }

  build(stream, shard) {
    this.stream = stream.stream;
    this.id = shard.id;
    this.values = {};
    const names = ["Worker", "Subscription", "Lag", "Rate", "Last event", "Checkpoint", "Saved", "Error", "Hash keys", "Kinesis"];
    const list = element("dl", {}, ...names.map((name) =>
      element("div", {}, element("dt", {}, name), (this.values[name] = element("dd")))));
    const links = (title, ids) => (ids.length ? [element("div", {}, element("dt", {}, title), element("dd", {}, ...ids.map((id) => this.link(id))))] : []);
    list.append(...links("Parents", shard.parents), ...links("Children", shard.children));
    this.container.replaceChildren(
      element("h2", { id: "details-title" }, shard.id),
      element("p", { class: "state" }, (this.badge = element("span", { class: "badge" })), " ", (this.meaning = element("span", { class: "quiet" }))),
      list, this.actions());
  }

  link(id) {
    const button = element("button", { type: "button", class: "link" }, id);
    button.addEventListener("click", () => this.onSelect(id));
    return button;
  }

  actions() {
    const button = (name, label, title) => {
      const made = element("button", { type: "button", title }, label);
      made.addEventListener("click", () => this.act(name));
      return made;
    };
    this.buttons = {
      pause: button("pause", "Pause", "deliver no more records; the lease is kept"),
      resume: button("resume", "Resume", "continue without loss or repetition"),
      release: button("release", "Release", "hand the lease to another worker"),
      seek: button("seek", "Seek", "continue elsewhere: records may come twice or never"),
    };
    this.to = element("input", { type: "text", id: "seek-to", placeholder: "latest, a time, a sequence number", autocomplete: "off" });
    this.result = element("p", { role: "status", class: "quiet" });
    return element("div", { class: "actions", role: "group", "aria-label": "Actions" },
      this.buttons.pause, this.buttons.resume, this.buttons.release,
      element("span", { class: "seek" }, element("label", { for: "seek-to" }, "to"), this.to, this.buttons.seek), this.result);
  }

  allow(shard) {
    const on = this.session.actions === "on" && READ_HERE.has(shard.state);
    this.buttons.pause.disabled = !on || shard.state === "paused";
    this.buttons.resume.disabled = !on || shard.state !== "paused";
    this.buttons.release.disabled = this.buttons.seek.disabled = this.to.disabled = !on;
    if (this.session.actions !== "on") this.explain();
    else if (!READ_HERE.has(shard.state) && !this.result.dataset.kept) setText(this.result, "Only the worker that reads a shard can act on it.");
  }

  explain() {
    if (this.session.actions === "login" && !this.result.querySelector("a")) {
      this.result.replaceChildren(element("a", { href: "/login" }, "Log in"), " with the token to act on shards.");
    } else if (this.session.actions === "off") setText(this.result, this.session.reason);
  }

  async act(action) {
    const { stream, id: shard_id } = this;
    if (action !== "pause" && action !== "resume" && !window.confirm(`${action} ${shard_id} of ${stream}?`)) return;
    this.result.dataset.kept = "yes";
    setText(this.result, `${action}: asked`);
    const to = action === "seek" ? { to: this.to.value } : {};
    try {
      const response = await fetch("/actions", {
        method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ action, stream, shard_id, ...to }),
      });
      const text = await response.text();
      const reason = response.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text).reason : text;
      setText(this.result, response.ok ? `${action}: done` : `${action}: refused: ${reason}`);
    } catch (error) {
      setText(this.result, `${action}: no response: ${error.message}`);
    }
  }
}
