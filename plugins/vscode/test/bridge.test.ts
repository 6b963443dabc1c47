import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { bridge, candidates, restartDaemon } from "../src/bridge";
import { RpcError } from "../src/rpc";

/** A program that does this instead of `localspec`. */
function program(script: string): string {
  const path = join(mkdtempSync(join(tmpdir(), "localspec")), "localspec");
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o700);
  return path;
}

test("the command is looked for on the PATH, then where pip puts it", () => {
  assert.deepEqual(candidates("localspec", "/home/a"), ["localspec", "/home/a/.local/bin/localspec"]);
  assert.deepEqual(candidates("  ", "/home/a"), candidates("localspec", "/home/a"));
  assert.deepEqual(candidates("/opt/localspec", "/home/a"), ["/opt/localspec"]);
  assert.deepEqual(candidates("~/bin/localspec", "/home/a"), ["/home/a/bin/localspec"]);
});

test("without such a command, the error says what to do", async () => {
  const isMissing = (error: unknown): boolean =>
    error instanceof RpcError && error.code === "command_missing" && /Install localspec.*localspec\.command/.test(error.advice);
  await assert.rejects(bridge("/nowhere/localspec", () => undefined, () => undefined), isMissing);
  await assert.rejects(restartDaemon("/nowhere/localspec"), isMissing);
});

test("a program that fails to restart the daemon fails with its own error", async () => {
  const command = program("echo 'localspec: the settings are wrong. Correct them.' >&2; exit 2");
  await assert.rejects(restartDaemon(command), (error) => error instanceof RpcError && error.advice === "the settings are wrong. Correct them.");
});

test("a program that ends without a word fails with what to do", async () => {
  const command = program("exit 1");
  const error = await new Promise<RpcError>((resolve, reject) => void bridge(command, () => undefined, resolve).catch(reject));
  assert.equal(error.advice, `${command}: it has ended. Run it in a terminal to see its errors.`);
});

test("lines go in and come out whole, and its last words are reported once it has ended", async () => {
  const lines: string[] = [];
  const command = program("read line; printf 'a\\342\\200'; sleep 0.1; printf '\\250b\\n%s\\nhalf' \"$line\"; echo 'localspec: lost' >&2");
  const error = await new Promise<RpcError>((resolve, reject) => {
    bridge(command, (line) => lines.push(line), resolve).then((own) => own.send("said"), reject);
  });
  assert.deepEqual(lines, ["a\u2028b", "said"]);
  assert.equal(error.advice, "lost");
});
