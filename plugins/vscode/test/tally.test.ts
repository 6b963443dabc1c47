import assert from "node:assert/strict";
import { test } from "node:test";

import type { Completions } from "../src/protocol";
import { label, Tally } from "../src/tally";

function answer(changes: Partial<Completions["stats"]>, more: Partial<Completions> = {}): Completions {
  return {
    items: [{ id: "a", text: "😀b" }],
    stats: { drafted: 0, accepted: 0, time_saved_s: null, speculation_off_reason: null, ...changes },
    result: { model: "m", draft: "d", finish_reason: "stop" },
    source: "model",
    ...more,
  };
}

/** An answer without a model's work, with the model that was requested. */
const REQUESTED = { model: "bundled", draft: null, finish_reason: "stop" };

test("what the model's completions came to is summed up", () => {
  const tally = new Tally();
  assert.deepEqual(tally.lines(), ["Model: no completion yet"]);
  tally.add(answer({ drafted: 10, accepted: 7, time_saved_s: 1.5 }), 20);
  tally.add(answer({ drafted: 10, accepted: 7, time_saved_s: 60 }), 20);
  const last = tally.add(answer({}, { source: "cache", elapsed_ms: 1.25, result: REQUESTED }), 2.5);
  assert.equal(last, "2.5 ms in the editor, 1.3 ms in the daemon, source cache, 2 characters");
  assert.deepEqual(tally.lines(), [
    "Model: m",
    "Draft: d",
    "Completions: 3",
    "Drafts accepted: 14 of 20 tokens (70 %)",
    "Time saved: 1 min 2 s",
    `Last completion: ${last}`,
  ]);
  assert.equal(label({ kind: "idle" }, tally), "$(sparkle) localspec 70 % · 1 min 2 s");
});

test("nothing is said of what is not known", () => {
  const tally = new Tally();
  tally.add(answer({ speculation_off_reason: "near-ties" }, { items: [] }), 3);
  assert.deepEqual(tally.lines().slice(2, -1), ["Completions: 1", "Speculation is off: near-ties"]);
  assert.equal(label({ kind: "thinking" }, tally), "$(ellipsis) localspec");
  assert.equal(label({ kind: "loading", fraction: 0.426 }, tally), "$(loading~spin) localspec 43 %");
});
