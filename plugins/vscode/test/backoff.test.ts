import assert from "node:assert/strict";
import { test } from "node:test";

import { Backoff } from "../src/backoff";

test("after each failure it waits longer, up to half a minute; success starts anew", () => {
  const backoff = new Backoff();
  assert.ok(backoff.ready(0));
  for (const wait of [0, 1, 2, 5, 10, 30, 30]) {
    backoff.failed(1000);
    assert.ok(backoff.ready(1000 + 1000 * wait));
    assert.ok(wait === 0 || !backoff.ready(999 + 1000 * wait));
  }
  backoff.reset();
  backoff.failed(5000);
  assert.ok(backoff.ready(5000));
});
