/** The places visited in the editor: pieces of other files, which are sent with a completion. */

import * as vscode from "vscode";

import { type Lines, Ring } from "./context";
import { inDiff, linesOf, mayBeRead, pathOf } from "./documents";
import type { File } from "./protocol";
import { Settings, touches } from "./settings";

export class Visits implements vscode.Disposable {
  private readonly ring = new Ring();
  private readonly listeners: vscode.Disposable;

  constructor() {
    this.listeners = vscode.Disposable.from(
      vscode.window.onDidChangeTextEditorSelection((event) => this.visit(event.textEditor)),
      vscode.window.onDidChangeActiveTextEditor((editor) => editor && this.visit(editor)),
      vscode.workspace.onDidCloseTextDocument((document) => this.close(document)),
      vscode.workspace.onDidDeleteFiles(({ files }) => files.forEach((uri) => this.ring.forget(pathOf(uri)))),
      vscode.workspace.onDidRenameFiles(({ files }) => files.forEach(({ oldUri }) => this.ring.forget(pathOf(oldUri)))),
      vscode.workspace.onDidChangeConfiguration((event) => touches(event) && this.begin()),
    );
    this.begin();
  }

  /** The pieces of all files but this one, the last visited first. */
  files(document: vscode.TextDocument): File[] {
    const open = new Map<string, vscode.TextDocument>();
    vscode.workspace.textDocuments.forEach((each) => open.set(pathOf(each.uri), each));
    return this.ring.files(pathOf(document.uri), (path): Lines | undefined => {
      const found = open.get(path);
      return found && (mayBeRead(found, new Settings(found)) ? linesOf(found) : NOTHING);
    });
  }

  dispose(): void {
    this.listeners.dispose();
  }

  /** Forget the visits under other settings: their files may be excluded now. */
  private begin(): void {
    this.ring.clear();
    vscode.window.visibleTextEditors.forEach((editor) => this.visit(editor));
  }

  private visit(editor: vscode.TextEditor): void {
    if (mayBeRead(editor.document, new Settings(editor.document)) && !inDiff()) {
      this.ring.visit(pathOf(editor.document.uri), editor.selection.active.line);
    }
  }

  private close(document: vscode.TextDocument): void {
    if (mayBeRead(document, new Settings(document))) {
      this.ring.keep(pathOf(document.uri), linesOf(document));
    } else {
      this.ring.forget(pathOf(document.uri));
    }
  }
}

const NOTHING: Lines = { count: 0, between: () => "" };
