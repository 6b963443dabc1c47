/** Finding and starting the daemon, by the command `localspec`. */

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

import type { Discovery } from "./protocol";
import { type ErrorData, RpcError } from "./rpc";

const PATIENCE_MS = 60_000;

/** A daemon's URL, and the token to connect. */
export interface Address {
  readonly url: string;
  readonly token: string;
}

/** The address of this user's daemon, which is started if none runs; `restart` replaces a running one. */
export async function daemon(command: string, action: "start" | "restart"): Promise<Address> {
  const found = JSON.parse(await printed(command, ["daemon", action, "--json"])) as Discovery;
  if (found.url === null) {
    throw new RpcError({
      code: "unreachable",
      message: "The daemon has no TCP port: this machine has no address 127.0.0.1 or ::1.",
      remedy: "Bring the loopback interface up, and run “localspec: Restart Daemon”.",
    });
  }
  return { url: found.url, token: (await readFile(found.token_file, "utf8")).trim() };
}

/** The paths that `command` may mean, the likeliest first. */
export function candidates(command: string, home: string = homedir()): string[] {
  const named = command.trim() || "localspec";
  if (named.startsWith("~/")) {
    return [join(home, named.slice(2))];
  }
  return /[\\/]/.test(named) ? [named] : [named, join(home, ".local", "bin", named)];
}

async function printed(command: string, words: string[]): Promise<string> {
  for (const each of candidates(command)) {
    const output = await run(each, words);
    if (output !== undefined) {
      return output;
    }
  }
  throw new RpcError({
    code: "command_missing",
    message: `The command ${command} was not found.`,
    remedy: "Install localspec (its README, “Install”), or set localspec.command to its path.",
  });
}

/** The output of a program, or undefined if there is no such program. */
function run(program: string, words: string[]): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    execFile(program, words, { timeout: PATIENCE_MS, windowsHide: true }, (error, stdout, stderr) => {
      if (error === null) {
        resolve(stdout);
      } else if (error.code === "ENOENT") {
        resolve(undefined);
      } else {
        reject(failure(program, stdout, stderr, error.message));
      }
    });
  });
}

function failure(program: string, stdout: string, stderr: string, message: string): RpcError {
  try {
    return new RpcError((JSON.parse(stdout) as { error: ErrorData }).error);
  } catch {
    const reason = stderr.trim().split("\n").at(-1) || message;
    const remedy = "Run it in a terminal to see its errors.";
    return new RpcError({ code: "command_failed", message: `${program}: ${reason}`, remedy });
  }
}
