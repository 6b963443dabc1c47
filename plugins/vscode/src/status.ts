/** The status item. */

import * as vscode from "vscode";

import { inDiff, mayBeRead } from "./documents";
import type { Completions, ModelProgress } from "./protocol";
import { Settings } from "./settings";
import { label, sentence, type State, Tally } from "./tally";

export class Status implements vscode.Disposable {
  private readonly tally = new Tally();
  private readonly item: vscode.StatusBarItem;
  private readonly listeners: vscode.Disposable;
  private state: State = { kind: "waiting" };
  private running = 0;

  constructor() {
    this.item = vscode.window.createStatusBarItem("localspec.status", vscode.StatusBarAlignment.Right, 100);
    this.item.name = "localspec";
    this.item.command = "localspec.showStats";
    this.listeners = vscode.Disposable.from(
      this.item,
      vscode.window.onDidChangeActiveTextEditor(() => this.draw()),
      vscode.workspace.onDidChangeConfiguration(() => this.draw()),
    );
    this.draw();
    this.item.show();
  }

  set(state: State): void {
    this.state = state;
    this.draw();
  }

  progress({ fraction }: ModelProgress): void {
    this.set(fraction < 1 ? { kind: "loading", fraction } : { kind: "idle" });
  }

  /** Count an answer, which took so many milliseconds; returns a description for the log. */
  count(answer: Completions, elapsed: number): string {
    const last = this.tally.add(answer, elapsed);
    this.draw();
    return last;
  }

  /** Show a request in progress until `work` ends. */
  async during<T>(work: Promise<T>): Promise<T> {
    this.running += 1;
    this.draw();
    try {
      return await work;
    } finally {
      this.running -= 1;
      this.draw();
    }
  }

  /** The lines of the tooltip and of the statistics. */
  get lines(): string[] {
    return [sentence(this.seen()), ...this.tally.lines()];
  }

  dispose(): void {
    this.listeners.dispose();
  }

  private draw(): void {
    const state = this.seen();
    this.item.text = label(state, this.tally);
    this.item.accessibilityInformation = { label: `localspec: ${this.lines.join("; ")}`, role: "button" };
    this.item.tooltip = new vscode.MarkdownString().appendText(this.lines.join("\n"));
    const color = state.kind === "error" ? "statusBarItem.warningBackground" : undefined;
    this.item.backgroundColor = color === undefined ? undefined : new vscode.ThemeColor(color);
  }

  private seen(): State {
    const document = vscode.window.activeTextEditor?.document;
    const settings = new Settings(document);
    if (!settings.enabled) {
      return { kind: "off", why: "Completions are switched off." };
    }
    if (document !== undefined && (!mayBeRead(document, settings) || inDiff())) {
      return { kind: "off", why: "Completions are off for this file, and nothing of it is sent." };
    }
    return this.running > 0 && this.state.kind === "idle" ? { kind: "thinking" } : this.state;
  }
}
