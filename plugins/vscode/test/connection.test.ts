import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection, DISCONNECTED } from "../src/connection";
import { RpcError } from "../src/rpc";

const MISSING = "/nowhere/localspec";

function connection(): { connection: Connection; seen: string[] } {
  const seen: string[] = [];
  const watcher = {
    connecting: () => seen.push("connecting"),
    connected: () => seen.push("connected"),
    disconnected: () => seen.push("disconnected"),
    progress: () => undefined,
  };
  return { connection: new Connection(() => MISSING, "0", watcher), seen };
}

function fails(code: string): (thrown: unknown) => boolean {
  return (thrown) => thrown instanceof RpcError && thrown.code === code;
}

test("what failed is tried again at once by who is eager; others wait", async () => {
  const { connection: tried, seen } = connection();
  await assert.rejects(tried.rpc(false), fails("command_missing"));
  await assert.rejects(tried.rpc(true), fails("command_missing"));
  await assert.rejects(tried.rpc(false), fails("command_missing"));
  assert.deepEqual(seen, ["connecting", "disconnected", "connecting", "disconnected"]);
  tried.forgive();
  await assert.rejects(tried.rpc(false), fails("command_missing"));
  assert.equal(seen.length, 6);
});

test("all who wait for a connection wait for the same one", async () => {
  const { connection: tried, seen } = connection();
  const both = [tried.rpc(false), tried.rpc(true)];
  assert.equal(both[0], both[1]);
  await assert.rejects(Promise.all(both));
  assert.deepEqual(seen, ["connecting", "disconnected"]);
});

test("once it is over nothing is started any more", async () => {
  const { connection: over, seen } = connection();
  const waiting = over.rpc(true);
  over.dispose();
  await assert.rejects(waiting);
  await assert.rejects(over.rpc(true), fails(DISCONNECTED));
  assert.deepEqual(seen, ["connecting"]);
  assert.equal(over.current, undefined);
});
