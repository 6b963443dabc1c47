import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { workspaceOf } from "../src/workspace";

const TOP = realpathSync(mkdtempSync(join(tmpdir(), "localspec-")));
const REPOSITORY = join(TOP, "repository");
const DEEP = join(REPOSITORY, "packages", "deep");
const SUBMODULE = join(REPOSITORY, "submodule");

mkdirSync(join(REPOSITORY, ".git"), { recursive: true });
mkdirSync(DEEP, { recursive: true });
mkdirSync(join(SUBMODULE, "src"), { recursive: true });
writeFileSync(join(SUBMODULE, ".git"), "gitdir: ../.git/modules/submodule\n");
mkdirSync(join(TOP, "outside"));
symlinkSync(DEEP, join(TOP, "outside", "link"));

after(() => rmSync(TOP, { recursive: true }));

test("a folder belongs to the repository around it, the nearest one", () => {
  assert.equal(workspaceOf(DEEP), REPOSITORY);
  assert.equal(workspaceOf(REPOSITORY), REPOSITORY);
  assert.equal(workspaceOf(join(SUBMODULE, "src")), SUBMODULE);
});

test("what counts is where a folder really is", () => {
  assert.equal(workspaceOf(join(TOP, "outside", "link")), REPOSITORY);
});

test("a folder in no repository is its own workspace, also one that is gone", () => {
  assert.equal(workspaceOf(join(TOP, "outside")), join(TOP, "outside"));
  assert.equal(workspaceOf(join(TOP, "gone")), join(TOP, "gone"));
  assert.equal(workspaceOf(join(REPOSITORY, "gone")), REPOSITORY);
});
