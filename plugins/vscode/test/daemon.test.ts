import assert from "node:assert/strict";
import { test } from "node:test";

import { candidates, daemon } from "../src/daemon";
import { RpcError } from "../src/rpc";

test("the command is looked for on the PATH, then where pip puts it", () => {
  assert.deepEqual(candidates("localspec", "/home/a"), ["localspec", "/home/a/.local/bin/localspec"]);
  assert.deepEqual(candidates("  ", "/home/a"), candidates("localspec", "/home/a"));
  assert.deepEqual(candidates("/opt/localspec", "/home/a"), ["/opt/localspec"]);
  assert.deepEqual(candidates("~/bin/localspec", "/home/a"), ["/home/a/bin/localspec"]);
});

test("where there is no such command, the error says what to do", async () => {
  await assert.rejects(daemon("/nowhere/localspec", "start"), (error) => {
    assert.ok(error instanceof RpcError);
    assert.equal(error.code, "command_missing");
    assert.match(error.advice, /Install localspec.*localspec\.command/);
    return true;
  });
});

test("a program that is not localspec fails with its own error", async () => {
  await assert.rejects(daemon("/bin/false", "start"), (error) => error instanceof RpcError && error.code === "command_failed");
});
