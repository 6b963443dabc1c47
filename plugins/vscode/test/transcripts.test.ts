/** The golden conversations, played by the object that the extension talks through. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { type Request, Rpc, RpcError } from "../src/rpc";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Frame = { [key: string]: Json };

const FOLDER = join(__dirname, "../../../../tests/transcripts");
const NOTIFICATIONS = [
  ...["stream/started", "stream/progress", "stream/delta", "model/progress"],
  ...["speculation/degraded", "event"],
];

/** Return a value of a transcript with each placeholder replaced by a fixed text. */
function filled(value: Json): Json {
  if (typeof value === "string") {
    return /^<.*>$/.test(value) ? `any ${value}` : value;
  }
  if (Array.isArray(value)) {
    return value.map(filled);
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([key]) => key !== "<exactly>");
    return Object.fromEntries(entries.map(([key, each]) => [key, filled(each)]));
  }
  return value;
}

/** A client that plays a transcript; ids are mapped to those that the object chooses. */
class Player {
  private readonly sent: Frame[] = [];
  private readonly rpc = new Rpc((frame) => this.sent.push(JSON.parse(frame) as Frame));
  private readonly requests = new Map<Json, Request<Json>>();
  private readonly answered = new Set<Request<Json>>();
  private readonly received: Frame[] = [];

  constructor() {
    for (const method of NOTIFICATIONS) {
      this.rpc.on(method, (params) => this.received.push({ method, params: params as Frame }));
    }
  }

  say(frame: Json): void {
    if (typeof frame === "string") {
      this.rpc.receive(frame);
      return;
    }
    const { id, method, params } = filled(frame) as { id?: Json; method: string; params?: Frame };
    const expected: Frame = { jsonrpc: "2.0", method, ...(params && { params: this.mapped(params, "id") }) };
    const cancelled = method === "$/cancelRequest" ? this.requests.get(params?.["id"] ?? null) : undefined;
    if (cancelled !== undefined && !this.answered.has(cancelled)) {
      cancelled.cancel();
    } else if (cancelled !== undefined) {
      cancelled.cancel();
      assert.deepEqual(this.sent, [], "what has ended is not cancelled");
      return;
    } else if (id === undefined) {
      this.rpc.notify(method, params);
    } else {
      const request = this.rpc.request<Json>(method, params);
      request.result.catch(() => undefined);
      this.requests.set(id, request);
      expected["id"] = request.id;
    }
    assert.deepEqual(this.sent.pop(), expected);
  }

  async hear(frame: Frame): Promise<void> {
    const { id, method, params, result, error } = filled(frame) as Frame;
    if (method !== undefined) {
      const mapped = this.mapped(params as Frame, "request");
      this.rpc.receive(JSON.stringify({ jsonrpc: "2.0", method, params: mapped }));
      assert.deepEqual(this.received.pop(), { method, params: mapped });
      return;
    }
    const request = this.requests.get(id ?? null);
    if (request !== undefined) {
      this.answered.add(request);
    }
    const rest = error === undefined ? { result: result ?? null } : { error };
    this.rpc.receive(JSON.stringify({ jsonrpc: "2.0", id: request?.id ?? null, ...rest }));
    if (error === undefined) {
      assert.deepEqual(await request?.result, result ?? null);
    } else if (request !== undefined) {
      await assert.rejects(request.result, (thrown) => same(thrown, error as Frame));
    }
  }

  get isDone(): boolean {
    return this.sent.length === 0 && this.received.length === 0;
  }

  private mapped(params: Frame, key: string): Frame {
    const request = key in params ? this.requests.get(params[key] ?? null) : undefined;
    return request === undefined ? params : { ...params, [key]: request.id };
  }
}

function same(thrown: unknown, error: Frame): boolean {
  assert.ok(thrown instanceof RpcError);
  const data = error["data"] as Frame | undefined;
  assert.equal(thrown.code, data?.["code"] ?? "protocol");
  if (data?.["remedy"] !== undefined) {
    assert.equal(thrown.data.remedy, data["remedy"]);
  }
  return true;
}

const files = readdirSync(FOLDER).filter((name) => name.endsWith(".jsonl"));
assert.ok(files.length > 0);

for (const name of files) {
  test(`transcript ${name}`, async () => {
    const player = new Player();
    const lines = readFileSync(join(FOLDER, name), "utf8").trim().split("\n");
    for (const line of lines.map((each) => JSON.parse(each) as Frame)) {
      if (line["client"] !== undefined) {
        player.say(line["client"]);
      } else if (line["server"] !== undefined) {
        await player.hear(line["server"] as Frame);
      }
    }
    assert.ok(player.isDone);
  });
}
