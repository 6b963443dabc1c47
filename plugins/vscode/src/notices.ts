/** Notices of errors, each kind once, with its remedy. */

import * as vscode from "vscode";

import { DISCONNECTED } from "./connection";
import type { RpcError } from "./rpc";

/** Codes of errors that pass by themselves: only the status item shows them. */
const PASSING = [DISCONNECTED, "shutting_down", "engine_busy", "queue_full"];

export class Notices {
  private readonly notified = new Set<string>();

  constructor(private readonly log: vscode.LogOutputChannel) {}

  /** Show an error, unless its kind was shown already; one of a user's request (`byUser`) is always shown. */
  error(error: RpcError, byUser: boolean): void {
    this.log.warn(`${error.code}: ${error.advice}`);
    if (!byUser && (PASSING.includes(error.code) || this.notified.has(error.code))) {
      return;
    }
    this.notified.add(error.code);
    void this.show(error.advice);
  }

  /** Show a warning. */
  warn(sentence: string): void {
    this.log.warn(sentence);
    void this.show(sentence);
  }

  /** Have every kind of error shown again at its next occurrence. */
  reset(): void {
    this.notified.clear();
  }

  private async show(sentence: string): Promise<void> {
    const settings = "Open Settings";
    const log = "Show Log";
    const choice = await vscode.window.showWarningMessage(`localspec: ${sentence}`, settings, log);
    if (choice === settings) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "localspec.");
    } else if (choice === log) {
      this.log.show();
    }
  }
}
