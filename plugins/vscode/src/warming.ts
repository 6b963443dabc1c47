/** Prefill at a resting cursor: the model reads the text before the first keystroke. */

import * as vscode from "vscode";

import type { Completion } from "./completion";
import { windowAt } from "./context";
import { inDiff, linesOf, mayBeRead } from "./documents";
import type { Link } from "./link";
import { Settings } from "./settings";

const REST_MS = 700;
const FAR = 64;

export class Warming implements vscode.Disposable {
  private readonly listeners: vscode.Disposable;
  private rest: NodeJS.Timeout | undefined;
  private isBusy = false;

  constructor(
    private readonly completion: Completion,
    private readonly link: Link,
  ) {
    this.listeners = vscode.Disposable.from(
      vscode.window.onDidChangeTextEditorSelection(() => this.wait()),
      vscode.window.onDidChangeActiveTextEditor(() => this.wait()),
    );
  }

  dispose(): void {
    clearTimeout(this.rest);
    this.listeners.dispose();
  }

  private wait(): void {
    clearTimeout(this.rest);
    this.rest = setTimeout(() => void this.warm(), REST_MS);
  }

  private async warm(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined || this.isBusy || !this.isWorthIt(editor)) {
      return;
    }
    const { document, selection } = editor;
    const { line, character } = selection.active;
    this.completion.lastPlace = { document: document.uri.toString(), line };
    const context = this.completion.context(document, windowAt(linesOf(document), line, character));
    const { model } = new Settings(document);
    this.isBusy = true;
    await this.link.mention("completion/warm", { ...context, ...(model === "" ? {} : { options: { model } }) });
    this.isBusy = false;
  }

  /** Return true after the first request, at a place that the model has not read yet. */
  private isWorthIt({ document, selection }: vscode.TextEditor): boolean {
    const { lastPlace } = this.completion;
    const settings = new Settings(document);
    if (lastPlace === undefined || !settings.enabled || !settings.automatic || !mayBeRead(document, settings) || inDiff()) {
      return false;
    }
    return lastPlace.document !== document.uri.toString() || Math.abs(lastPlace.line - selection.active.line) > FAR;
  }
}
