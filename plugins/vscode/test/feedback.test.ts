import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { Feedback } from "../src/feedback";

let reported: string[] = [];
let feedback = new Feedback(() => undefined);

beforeEach(() => {
  reported = [];
  feedback = new Feedback((item, event, chars) => reported.push([item, event, chars].filter((each) => each !== undefined).join(" ")));
});

test("it is shown once, and accepted", () => {
  feedback.offer("a");
  feedback.shown("a");
  feedback.offer("a");
  feedback.shown("a");
  feedback.accepted("a");
  feedback.leave();
  assert.deepEqual(reported, ["a shown", "a accepted"]);
});

test("an item that was shown and not accepted is dismissed; one that was not shown is not reported", () => {
  feedback.offer("a");
  feedback.offer("b");
  feedback.shown("a");
  feedback.shown("b");
  feedback.offer("c");
  feedback.leave();
  feedback.leave();
  assert.deepEqual(reported, ["b shown", "b dismissed"]);
});

test("words are reported at once, letters when it is over, from the item's beginning", () => {
  feedback.offer("a");
  feedback.took("a", 1, false);
  feedback.took("a", 6, true);
  feedback.took("a", 6, true);
  feedback.took("a", 8, false);
  feedback.leave();
  assert.deepEqual(reported, ["a shown", "a partial 6", "a partial 8"]);
});

test("what was taken in part and given up is not dismissed as well", () => {
  feedback.offer("a");
  feedback.took("a", 3, true);
  feedback.took("a", 0, false);
  feedback.leave();
  assert.deepEqual(reported, ["a shown", "a partial 3"]);
});

test("another item than the first may be accepted", () => {
  feedback.offer("a");
  feedback.shown("a");
  feedback.accepted("b");
  assert.deepEqual(reported, ["a shown", "a dismissed", "b shown", "b accepted"]);
});

test("a word accepted from another item than the first counts for that one", () => {
  feedback.offer("a");
  feedback.shown("a");
  feedback.along(["b", "c"]);
  feedback.took("b", 4, true);
  feedback.took("c", 4, true);
  feedback.leave();
  assert.deepEqual(reported, ["a shown", "a dismissed", "b shown", "b partial 4"]);
});

test("as long as the text goes along the current item, it stays the one", () => {
  feedback.offer("a");
  feedback.shown("a");
  feedback.along(["b", "a"]);
  feedback.along([]);
  feedback.took("a", 2, true);
  assert.deepEqual(reported, ["a shown", "a partial 2"]);
});
