import assert from "node:assert/strict";
import { test } from "node:test";

import { isSecret } from "../src/secrets";

test("names of keys, of credentials and of environments mark secrets", () => {
  const names = ["id_rsa", "ID_ED25519", "server.pem", "tls.KEY", ".npmrc", "credentials", "prod.tfvars", ".env", ".ENV.local", "prod.env", "AuthKey_1.p8", "deploy_rsa", "vault.yml"];
  assert.deepEqual(names.filter((name) => !isSecret(name)), []);
});

test("other names do not, though they look alike", () => {
  const names = ["id_rsa.pub", "id_map.py", "pem.py", "key", "credentials.py", "my.npmrc", "environment.ts", "a.envy", "rsa", "README"];
  assert.deepEqual(names.filter(isSecret), []);
});

test("a sample of an environment counts as one, as what ends like code does", () => {
  assert.deepEqual([".env.example", ".env.py", ".envrc"].filter((name) => !isSecret(name)), []);
});

test("a copy is as secret as what it copies", () => {
  const secret = [".env~", ".npmrc~", "server.pem.bak", "id_rsa.orig~", ".server.key.swp", ".env-prod"];
  assert.deepEqual(secret.filter((name) => !isSecret(name)), []);
  const more = ["app.env.local", "secrets.txt", "client_secret_1.json", "secrets.h", "wp-config.php", ".env."];
  assert.deepEqual(more.filter((name) => !isSecret(name)), []);
  const code = ["app.env.ts", "credentials.go", "secret_santa.py", "environment.yml", "a.env2.b", "env.", ".en"];
  assert.deepEqual(code.filter(isSecret), []);
  assert.deepEqual(["notes.txt~", "id_rsa.pub.bak", "~", ".bak"].filter(isSecret), []);
});
