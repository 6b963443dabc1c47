/** Documents of the editor: the ones that may be sent, and their names on the wire. */

import * as vscode from "vscode";

import { LARGEST_FILE, type Lines } from "./context";
import { isSecret } from "./secrets";
import type { Settings } from "./settings";

/** Schemes of documents that users write in; output, source control's views and the like are never sent. */
const SCHEMES = ["file", "untitled", "vscode-notebook-cell", "vscode-remote", "vscode-vfs"];

export const SELECTOR: vscode.DocumentSelector = SCHEMES.map((scheme) => ({ scheme }));

/** Return true if text of a document may be sent. */
export function mayBeRead(document: vscode.TextDocument, settings: Settings): boolean {
  return (
    SCHEMES.includes(document.uri.scheme) &&
    !settings.excludedLanguages.includes(document.languageId) &&
    !isSecret(nameOf(document.uri)) &&
    sizeOf(document) <= LARGEST_FILE
  );
}

/** The name of a document on the wire: newer requests for it replace older ones. */
export function pathOf(uri: vscode.Uri): string {
  switch (uri.scheme) {
    case "file":
    case "vscode-notebook-cell":
      return uri.fsPath;
    case "untitled":
      return `untitled:${uri.path}`;
    default:
      return uri.toString();
  }
}

/** Return true if the active tab compares two texts. */
export function inDiff(): boolean {
  const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
  return input instanceof vscode.TabInputTextDiff;
}

export function linesOf(document: vscode.TextDocument): Lines {
  return {
    count: document.lineCount,
    between: (line, column, endLine, endColumn) => document.getText(new vscode.Range(line, column, endLine, endColumn)),
  };
}

function nameOf(uri: vscode.Uri): string {
  return uri.path.slice(uri.path.lastIndexOf("/") + 1);
}

function sizeOf(document: vscode.TextDocument): number {
  return document.offsetAt(new vscode.Position(document.lineCount, 0));
}
