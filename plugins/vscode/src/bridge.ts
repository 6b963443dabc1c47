/** `localspec bridge` as a child process, which carries messages to the daemon, one a line; it starts the daemon. */

import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { homedir } from "node:os";
import { join } from "node:path";

import { RpcError } from "./rpc";

const PATIENCE_MS = 60_000;

export interface Bridge {
  send(message: string): void;
  close(): void;
}

/** The paths that `command` may mean, the likeliest first. */
export function candidates(command: string, home: string = homedir()): string[] {
  const named = command.trim() || "localspec";
  if (named.startsWith("~/")) {
    return [join(home, named.slice(2))];
  }
  return /[\\/]/.test(named) ? [named] : [named, join(home, ".local", "bin", named)];
}

/** Start a bridge. `receive` gets the daemon's messages, `ended` the last line of the bridge's standard error. */
export async function bridge(command: string, receive: (message: string) => void, ended: (error: RpcError) => void): Promise<Bridge> {
  const child = await first(command, (program) => spawned(program));
  let rest = "";
  let errors = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(receive);
  });
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
  child.stdin.on("error", () => undefined); // the bridge has ended, which "close" reports
  child.on("close", () => ended(failure(child.spawnfile, errors, "it has ended.")));
  return { send: (message) => void child.stdin.write(`${message}\n`), close: () => void child.kill() };
}

/** Replace the daemon by a new one. */
export async function restartDaemon(command: string): Promise<void> {
  await first(command, (program) => new Promise<true | undefined>((resolve, reject) => {
    execFile(program, ["daemon", "restart"], { timeout: PATIENCE_MS, windowsHide: true }, (error, _, stderr) => {
      if (error === null || error.code === "ENOENT") {
        resolve(error === null ? true : undefined);
      } else {
        reject(failure(program, stderr, error.message));
      }
    });
  }));
}

/** The result of the first program there is: `run` has none for one that is missing. */
async function first<T>(command: string, run: (program: string) => Promise<T | undefined>): Promise<T> {
  for (const program of candidates(command)) {
    const result = await run(program);
    if (result !== undefined) {
      return result;
    }
  }
  throw new RpcError({
    code: "command_missing",
    message: `The command ${command} was not found.`,
    remedy: "Install localspec (its README, “Install”), or set localspec.command to its path.",
  });
}

function spawned(program: string): Promise<ChildProcessWithoutNullStreams | undefined> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, ["bridge"], { windowsHide: true });
    child.once("spawn", () => resolve(child));
    child.on("error", (error: NodeJS.ErrnoException) => (error.code === "ENOENT" ? resolve(undefined) : reject(failure(program, "", error.message))));
  });
}

function failure(program: string, stderr: string, otherwise: string): RpcError {
  const line = stderr.trim().split("\n").at(-1) || otherwise;
  const said = /^localspec: (.*)/.exec(line)?.[1]; // a message of ours ends with its remedy
  const remedy = said === undefined ? "Run it in a terminal to see its errors." : "";
  return new RpcError({ code: "command_failed", message: said ?? `${program}: ${line}`, remedy });
}
