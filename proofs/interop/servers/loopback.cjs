// kinesis-mock listens on every interface and has no setting for it. Loaded before kinesis-mock, this file makes all
// servers of the process listen only on the loopback interface.
"use strict";
const net = require("node:net");

const HOST = "127.0.0.1";
const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (...args) {
  const [first, ...rest] = args;
  const callback = args.filter((arg) => typeof arg === "function").slice(-1);
  if (typeof first === "object" && first !== null) {
    const isPort = first.path === undefined && first.fd === undefined && first._handle === undefined;
    return listen.call(this, isPort ? { ...first, host: HOST } : first, ...rest);
  }
  const isPort = first === undefined || typeof first === "function" || Number.isInteger(Number(first));
  return isPort ? listen.call(this, { port: Number(first) || 0, host: HOST }, ...callback) : listen.apply(this, args);
};
