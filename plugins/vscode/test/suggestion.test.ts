import assert from "node:assert/strict";
import { test } from "node:test";

import { codePoints, type Followed, goesOn, lineOf, Offer, offered, type Place, rest } from "../src/suggestion";

const AT: Place = { document: "file:///a.py", start: 0, prefix: "x = 1\nif ", suffix: "\n" };

function offer(...texts: string[]): Offer {
  return new Offer(AT, texts.map((text, i) => offered({ id: `item${i}`, text })));
}

function typed(text: string, suffix: string = AT.suffix): Place {
  return { ...AT, prefix: AT.prefix + text, suffix };
}

function only(followed: readonly Followed[]): Followed {
  assert.equal(followed.length, 1);
  return followed[0]!;
}

test("what is typed along leaves the rest, and taking it back restores it", () => {
  const whole = offer("hi < 0:\n    pass");
  for (const text of ["", "h", "hi < 0:", "hi", "hi < 0:\n    p", ""]) {
    assert.equal(only(whole.follow(typed(text))).taken, text.length);
  }
});

test("anything else ends it", () => {
  const whole = offer("hi < 0:");
  const elsewhere: Place[] = [
    typed("ho"),
    typed("hi < 0:!"),
    typed("h", "x\n"),
    typed("h", ""),
    { ...typed("h"), document: "file:///b.py" },
    { ...typed("h"), start: 64 },
    { ...AT, prefix: "x = 1\nif" },
    { ...typed("h"), prefix: "y = 1\nif h" },
  ];
  for (const place of elsewhere) {
    assert.deepEqual(whole.follow(place), [], JSON.stringify(place));
  }
});

test("when all of it stands there, nothing goes on", () => {
  const [followed] = offer("hi").follow(typed("hi"));
  assert.ok(followed !== undefined && !goesOn(followed));
  assert.equal(codePoints(followed), 2);
});

test("brackets that the editor closes belong to an item that has them", () => {
  const whole = offer("f(a, [b]):\n    pass");
  assert.equal(only(whole.follow(typed("f(", ")\n"))).closers, 1);
  assert.equal(only(whole.follow(typed("f(a, [", "])\n"))).closers, 2);
  assert.deepEqual(whole.follow(typed("f(", "}\n")), []);
  assert.deepEqual(whole.follow(typed("f(a, [b]):", ")\n")), []);
  assert.deepEqual(whole.follow(typed("f(", "))))\n")), []);
});

test("of several items those go on that are typed", () => {
  const two = offer("hi < 0:", "high:", "", "hi < 0:");
  assert.deepEqual(two.items.map((item) => item.id), ["item0", "item1"]);
  assert.deepEqual(two.follow(typed("hi")).map(({ item }) => item.id), ["item0", "item1"]);
  assert.equal(only(two.follow(typed("hig"))).item.id, "item1");
});

test("characters are counted as code points, whatever they take in UTF-16", () => {
  const whole = offer("'😀e\u0301漢'");
  assert.equal(codePoints(only(whole.follow(typed("'😀")))), 2);
  assert.equal(codePoints(only(whole.follow(typed("'😀e\u0301漢'")))), 6);
  assert.deepEqual(whole.follow(typed("'\ud83d")).map(codePoints), [2], "half a pair is one that begins");
});

test("line ends of a file are plain in the item, and counted as they are", () => {
  const windows = new Offer({ ...AT, prefix: "x = 1\r\nif ", suffix: "\r\n" }, [offered({ id: "a", text: "a:\r\n  b\r\n" })]);
  const at = (text: string): Followed =>
    only(windows.follow({ ...AT, prefix: "x = 1\r\nif " + text, suffix: "\r\n" }));
  assert.equal(at("").item.text, "a:\n  b\n");
  assert.equal(codePoints(at("a:")), 2);
  assert.equal(codePoints(at("a:\r\n")), 4);
  assert.equal(codePoints(at("a:\r\n  b")), 7);
  assert.equal(codePoints(at("a:\r\n  b\r\n")), 9);
});

test("a rest is an item of its own, which knows what stood before it", () => {
  const left = rest(only(offer("a😀b:\r\n  c").follow(typed("a😀"))));
  assert.deepEqual(left, { id: "item0", text: "b:\n  c", original: "b:\r\n  c", before: 2 });
  const again = new Offer(typed("a😀"), [left]);
  assert.equal(codePoints(only(again.follow(typed("a😀b:\n")))), 6);
});

test("what is shown begins in the line of the cursor", () => {
  const whole = offer("a:\n  b\n  c");
  assert.deepEqual(lineOf(only(whole.follow(typed("")))), { text: "a:\n  b\n  c", column: 0 });
  assert.deepEqual(lineOf(only(whole.follow(typed("a")))), { text: "a:\n  b\n  c", column: -1 });
  assert.deepEqual(lineOf(only(whole.follow(typed("a:\n")))), { text: "  b\n  c", column: 0 });
  assert.deepEqual(lineOf(only(whole.follow(typed("a:\n  b")))), { text: "  b\n  c", column: -3 });
});
