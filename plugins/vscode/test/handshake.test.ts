import assert from "node:assert/strict";
import { test } from "node:test";

import { authenticated, newNonce, offered, proof } from "../src/handshake";
import { Rpc, RpcError } from "../src/rpc";

const TOKEN = "ab".repeat(32);
const URL_OF_DAEMON = "ws://127.0.0.1:8737";

/** A connection on which a challenge has come; what was sent then, and how it ended. */
async function challenged(params: object): Promise<{ sent: string[]; error: unknown }> {
  const sent: string[] = [];
  const rpc = new Rpc((frame) => sent.push(frame));
  const ended = authenticated(rpc, URL_OF_DAEMON, TOKEN, "1".repeat(64)).then(
    () => undefined,
    (error: unknown) => error,
  );
  rpc.receive(JSON.stringify({ jsonrpc: "2.0", method: "$/challenge", params }));
  return { sent, error: await ended };
}

test("a proof is that of the daemon's documentation", () => {
  const nonces = ["1".repeat(64), "2".repeat(64)] as const;
  assert.equal(
    proof(TOKEN, "daemon", 8737, ...nonces),
    "fa5d7fed9730ff60039d4ca1a22e591ba69e3697230e06052e6b15f86e779b0b",
  );
  assert.equal(
    proof(TOKEN, "client", 8737, ...nonces),
    "5b0661a6b248db8a2983a455b98658b876b535f0bd6f8ecd1abc1260d2074cd8",
  );
});

test("a nonce is new each time, and offered beside the protocol", () => {
  const [one, two] = [newNonce(), newNonce()];
  assert.match(one, /^[0-9a-f]{64}$/);
  assert.notEqual(one, two);
  assert.deepEqual(offered(one), ["localspec.v1", `localspec.nonce.${one}`]);
});

test("who proves to know the token is answered with a proof", async () => {
  const nonce = "2".repeat(64);
  const proved = proof(TOKEN, "daemon", 8737, "1".repeat(64), nonce);
  const { sent, error } = await challenged({ nonce, port: 8737, proof: proved });
  assert.equal(error, undefined);
  const mine = proof(TOKEN, "client", 8737, "1".repeat(64), nonce);
  assert.deepEqual(sent.map((frame) => JSON.parse(frame)), [
    { jsonrpc: "2.0", method: "$/authenticate", params: { proof: mine } },
  ]);
});

test("a peer that does not know the token, or relays another daemon's proof, receives nothing", async () => {
  const nonce = "2".repeat(64);
  const right = proof(TOKEN, "daemon", 8737, "1".repeat(64), nonce);
  for (const params of [
    {},
    { nonce, port: 8737, proof: "0".repeat(64) },
    { nonce, port: 8737, proof: 5 },
    { nonce, port: 8737, proof: "é".repeat(64) },
    { nonce: "3".repeat(64), port: 8737, proof: right },
    { nonce, port: 8738, proof: proof(TOKEN, "daemon", 8738, "1".repeat(64), nonce) },
  ]) {
    const { sent, error } = await challenged(params);
    assert.ok(error instanceof RpcError && error.code === "unreachable", JSON.stringify(params));
    assert.deepEqual(sent, []);
  }
});

test("a connection that ends before its proof came fails", async () => {
  const rpc = new Rpc(() => assert.fail("something was sent"));
  const ended = authenticated(rpc, URL_OF_DAEMON, TOKEN, newNonce());
  rpc.end(new RpcError({ code: "disconnected", message: "", remedy: "" }));
  await assert.rejects(ended);
});

test("a message before the proof reaches no handler, and ends the connection", async () => {
  const progress = { jsonrpc: "2.0", method: "model/progress", params: { loaded: 1 } };
  for (const frame of [
    JSON.stringify(progress),
    JSON.stringify({ jsonrpc: "2.0", id: 1, result: {} }),
    "no JSON",
    JSON.stringify({ jsonrpc: "2.0", method: "$/challenge", params: { proof: "0".repeat(4096) } }),
  ]) {
    const sent: string[] = [];
    const seen: object[] = [];
    const rpc = new Rpc((each) => sent.push(each));
    rpc.on("model/progress", (params) => seen.push(params));
    const ended = authenticated(rpc, URL_OF_DAEMON, TOKEN, "1".repeat(64));
    rpc.receive(frame);
    await assert.rejects(ended, (thrown) => thrown instanceof RpcError && thrown.code === "unreachable");
    rpc.receive(JSON.stringify(progress));
    assert.deepEqual([sent, seen], [[], []]);
  }
});

test("after the proof all is taken, but for another challenge", async () => {
  const sent: string[] = [];
  const seen: object[] = [];
  const rpc = new Rpc((frame) => sent.push(frame));
  rpc.on("model/progress", (params) => seen.push(params));
  const proved = authenticated(rpc, URL_OF_DAEMON, TOKEN, "1".repeat(64));
  const nonce = "2".repeat(64);
  const answered = proof(TOKEN, "daemon", 8737, "1".repeat(64), nonce);
  const challenge = JSON.stringify({ jsonrpc: "2.0", method: "$/challenge", params: { nonce, port: 8737, proof: answered } });
  rpc.receive(challenge);
  await proved;
  rpc.receive(challenge);
  rpc.receive(JSON.stringify({ jsonrpc: "2.0", method: "model/progress", params: { text: "x".repeat(5000) } }));
  assert.deepEqual([sent.length, seen.length], [1, 1]);
});
