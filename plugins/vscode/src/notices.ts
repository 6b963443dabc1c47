/** Errors as they are told: each kind once, with what can be done. */

import * as vscode from "vscode";

import { DISCONNECTED } from "./connection";
import type { RpcError } from "./rpc";

/** What passes by itself: the status item says it. */
const PASSING = [DISCONNECTED, "shutting_down", "engine_busy", "queue_full"];

export class Notices {
  private readonly told = new Set<string>();

  constructor(private readonly log: vscode.LogOutputChannel) {}

  /** Tell of an error, unless it was told already; `asked`: by somebody who waits for what failed. */
  tell(error: RpcError, asked: boolean): void {
    this.log.warn(`${error.code}: ${error.advice}`);
    if (!asked && (PASSING.includes(error.code) || this.told.has(error.code))) {
      return;
    }
    this.told.add(error.code);
    void this.show(error.advice);
  }

  /** Tell of what is no error, but not as somebody meant it. */
  warn(sentence: string): void {
    this.log.warn(sentence);
    void this.show(sentence);
  }

  /** What was wrong may have been mended: it is told again if not. */
  reset(): void {
    this.told.clear();
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
