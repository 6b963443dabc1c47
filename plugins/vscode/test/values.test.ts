import assert from "node:assert/strict";
import { test } from "node:test";

import { type Key, misfit, valueOf } from "../src/values";

const WRONG: [Key, unknown, unknown][] = [
  ["model", 5, ""],
  ["command", ["localspec"], "localspec"],
  ["excludedLanguages", "markdown", []],
  ["excludedLanguages", { markdown: true }, []],
  ["enabled", "false", true],
  ["multiline", 0, true],
  ["maxMs", 2.5, 5000],
  ["maxMs", "100", 5000],
];

test("a value of a wrong type is as if it were not set, and a sentence names the setting", () => {
  for (const [key, said, counts] of WRONG) {
    assert.deepEqual(valueOf(key, said), counts, key);
    assert.match(misfit(key, said) ?? "", new RegExp(`^The setting localspec\\.${key} is not of type \\w+: its default is used\\.$`));
  }
});

test("a value of the right type is used, without a sentence", () => {
  assert.equal(valueOf("model", "mine"), "mine");
  assert.equal(valueOf("enabled", false), false);
  assert.equal(valueOf("maxMs", 100), 100);
  assert.deepEqual(valueOf("excludedLanguages", ["markdown"]), ["markdown"]);
  assert.equal(misfit("enabled", false), undefined);
  assert.equal(misfit("excludedLanguages", []), undefined);
});

test("a setting that is not set has its default, without a sentence", () => {
  for (const nothing of [undefined, null]) {
    assert.equal(valueOf("maxMs", nothing), 5000);
    assert.equal(misfit("maxMs", nothing), undefined);
  }
});
