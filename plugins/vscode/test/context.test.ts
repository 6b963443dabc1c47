import assert from "node:assert/strict";
import { test } from "node:test";

import { firstLine, type Lines, Ring, sentPrefix, sentSuffix, windowAt } from "../src/context";

/** A text as an editor has it: positions beyond its end are its end. */
function textOf(text: string, end = "\n"): Lines {
  const lines = text.split(end);
  const offset = (line: number, column: number): number =>
    line >= lines.length ? text.length : lines.slice(0, line).join(end).length + (line > 0 ? end.length : 0) + column;
  return { count: lines.length, between: (a, b, c, d) => text.slice(offset(a, b), offset(c, d)) };
}

function numbered(count: number): Lines {
  return textOf(Array.from({ length: count }, (_, i) => `line ${i}`).join("\n"));
}

test("the window begins at a multiple of 64 lines, 256 to 319 before the cursor", () => {
  assert.deepEqual([0, 255, 256, 319, 320, 383, 384, 1000].map(firstLine), [0, 0, 0, 0, 64, 64, 128, 704]);
});

test("prefix and suffix meet at the cursor; the suffix has the 64 lines after it", () => {
  const lines = numbered(1000);
  const { start, prefix, suffix } = windowAt(lines, 500, 4);
  assert.equal(start, 192);
  assert.ok(prefix.startsWith("line 192\n") && prefix.endsWith("line 499\nline"));
  assert.ok(suffix.startsWith(" 500\nline 501\n") && suffix.endsWith("line 564\n"));
});

test("at the ends of a text there is what there is", () => {
  assert.deepEqual(windowAt(textOf(""), 0, 0), { start: 0, prefix: "", suffix: "" });
  assert.deepEqual(windowAt(textOf("a\nb"), 1, 1), { start: 0, prefix: "a\nb", suffix: "" });
});

test("columns are UTF-16 units; line ends stay as the file has them", () => {
  const lines = textOf("s = '😀e\u0301'\r\nif 漢:\r\n", "\r\n");
  assert.deepEqual(windowAt(lines, 0, 7), { start: 0, prefix: "s = '😀", suffix: "e\u0301'\r\nif 漢:\r\n" });
  assert.deepEqual(windowAt(lines, 1, 4), { start: 0, prefix: "s = '😀e\u0301'\r\nif 漢", suffix: ":\r\n" });
});

test("what is sent has bounds, and whole characters only", () => {
  const long = "😀".repeat(200_000);
  for (const sent of [sentPrefix(`${long}x`), sentSuffix(`x${long}`)]) {
    assert.ok(sent.length <= 256 * 1024 && sent.isWellFormed());
  }
  assert.ok(sentPrefix(`${long}x`).endsWith("😀x"));
  assert.equal(sentPrefix("a\ud83d"), "a\ufffd");
});

test("the ring has the last visited blocks of other files, two of one", () => {
  const ring = new Ring();
  const files = new Map([["a", numbered(400)], ["b", numbered(70)], ["c", textOf(" \n")]]);
  const open = (path: string): Lines | undefined => files.get(path);
  ring.visit("a", 10);
  ring.visit("a", 70);
  ring.visit("a", 71);
  ring.visit("b", 69);
  ring.visit("a", 200);
  ring.visit("c", 0);
  const said = ring.files("elsewhere", open).map(({ path, text }) => [path, text.slice(0, text.indexOf("\n"))]);
  assert.deepEqual(said.map(([path]) => path), ["a", "b", "a"]);
  assert.deepEqual(said.map(([, first]) => first), ["line 192", "line 64", "line 64"]);
  assert.deepEqual(ring.files("a", open).map(({ path }) => path), ["b"]);
});

test("of many files sixteen blocks are sent", () => {
  const ring = new Ring();
  const lines = numbered(1);
  for (let i = 0; i < 40; i += 1) {
    ring.visit(`file ${i}`, 0);
  }
  const paths = ring.files("file 39", () => lines).map(({ path }) => path);
  assert.equal(paths.length, 16);
  assert.deepEqual([paths[0], paths[15]], ["file 38", "file 23"]);
});

test("a closed file is sent as it was; a forgotten one is not", () => {
  const ring = new Ring();
  ring.visit("a", 0);
  assert.deepEqual(ring.files("b", () => undefined), []);
  ring.keep("a", textOf("kept"));
  assert.deepEqual(ring.files("b", () => undefined), [{ path: "a", text: "kept" }]);
  ring.forget("a");
  assert.deepEqual(ring.files("b", () => undefined), []);
});
