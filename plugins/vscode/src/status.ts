/** The status item, as the server reports its status. */

import * as vscode from "vscode";

/** Parameters of `didChangeStatus`. */
export interface Report {
  readonly busy: boolean;
  readonly message: string;
  readonly kind: "Normal" | "Error" | "Warning" | "Inactive";
}

const ICONS = { Normal: "sparkle", Error: "warning", Warning: "warning", Inactive: "circle-slash" };

export class Status {
  readonly item = vscode.window.createStatusBarItem("localspec.status", vscode.StatusBarAlignment.Right, 100);
  message = "";

  constructor() {
    this.item.name = "localspec";
    this.item.command = "localspec.status";
    this.show({ busy: false, message: "not running", kind: "Normal" });
    this.item.show();
  }

  show({ busy, message, kind }: Report): void {
    this.message = message;
    this.item.text = `$(${busy ? "ellipsis" : ICONS[kind]}) localspec`;
    this.item.tooltip = new vscode.MarkdownString().appendText(message);
    this.item.accessibilityInformation = { label: `localspec: ${message}`, role: "button" };
    this.item.backgroundColor = kind === "Error" ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
  }
}
