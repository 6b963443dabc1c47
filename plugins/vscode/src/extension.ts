/** Activation: creates the parts of the extension and registers them for disposal. */

import * as vscode from "vscode";

import { Commands } from "./commands";
import { Completion } from "./completion";
import { mayBeRead } from "./documents";
import { Link } from "./link";
import { Notices } from "./notices";
import { misfits, Settings, touches } from "./settings";
import { Status } from "./status";
import { Visits } from "./visits";
import { Warming } from "./warming";

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("localspec", { log: true });
  const status = new Status();
  const version = String((context.extension.packageJSON as { version: unknown }).version);
  const notices = new Notices(log);
  const link = new Link(version, status, notices, log);
  const visits = new Visits();
  const completion = new Completion(link, visits, status, log);
  context.subscriptions.push(
    log,
    status,
    link,
    visits,
    completion,
    new Warming(completion, link),
    new Commands(link, completion, status, log).register(),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (touches(event)) {
        completion.drop();
        link.forgive();
        misfits(event).forEach((wrong) => notices.warn(wrong));
      }
    }),
  );
  misfits().forEach((wrong) => notices.warn(wrong));
  if (vscode.window.visibleTextEditors.some(({ document }) => isWanted(document))) {
    void link.connect();
  }
}

function isWanted(document: vscode.TextDocument): boolean {
  const settings = new Settings(document);
  return settings.enabled && mayBeRead(document, settings);
}
