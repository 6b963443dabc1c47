/** Activation: the language server, the completions that it makes, the commands and the status item. */

import * as vscode from "vscode";

import { Completion } from "./completion";
import { Server } from "./server";
import { change, SECTION, serverSettings } from "./settings";
import { Status } from "./status";

/** Milliseconds after which a cursor rests. */
const REST_MS = 700;

let server: Server;

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("localspec", { log: true });
  const status = new Status();
  const completion = new Completion((method, params) => server.notify(method, params));
  server = new Server({ provideInlineCompletionItems: completion.provide }, status, log);
  let rest: NodeJS.Timeout | undefined;

  /** Run the server while there is a text to complete, and have it know which one the user is in. */
  async function focus(editor = vscode.window.activeTextEditor): Promise<void> {
    if (editor !== undefined && vscode.workspace.getConfiguration(SECTION).get("enabled") !== false) {
      await server.start();
      server.notify("textDocument/didFocus", { textDocument: { uri: String(editor.document.uri) } });
    }
  }

  /** Have the model read the text around a resting cursor, before a completion is requested there. */
  function wait({ textEditor: { document, selection } }: vscode.TextEditorSelectionChangeEvent): void {
    clearTimeout(rest);
    const place = { textDocument: { uri: String(document.uri) }, position: selection.active };
    rest = setTimeout(() => server.notify("localspec/didRest", place), REST_MS);
  }

  async function configure(event: vscode.ConfigurationChangeEvent): Promise<void> {
    if (event.affectsConfiguration(SECTION)) {
      completion.drop();
      if (event.affectsConfiguration(`${SECTION}.command`)) {
        await server.stop();
      }
      server.notify("workspace/didChangeConfiguration", { settings: { [SECTION]: serverSettings() } });
      await focus();
    }
  }

  async function showStatus(): Promise<void> {
    const entries: (vscode.QuickPickItem & { run?: string })[] = [
      ...status.message.split(" · ").map((label) => ({ label })),
      { label: "", kind: vscode.QuickPickItemKind.Separator },
      { label: "$(circle-slash) Toggle Completions", run: "toggle" },
      { label: "$(symbol-misc) Toggle Completions for This Language", run: "toggleLanguage" },
      { label: "$(server) Choose Model", run: "model" },
      { label: "$(debug-restart) Restart Daemon", run: "restart" },
      { label: "$(output) Show Log", run: "log" },
    ];
    const chosen = await vscode.window.showQuickPick(entries, { title: "localspec" });
    await (chosen?.run === "log" ? log.show() : chosen?.run && COMMANDS[chosen.run]?.());
  }

  const COMMANDS: Record<string, () => unknown> = {
    toggle: () => change<boolean>("enabled", (enabled) => !enabled),
    toggleLanguage: async () => {
      const language = vscode.window.activeTextEditor?.document.languageId ?? "";
      const other = (each: string): boolean => each !== language;
      await change<string[]>("excludedLanguages", (all) => (all.every(other) ? [...all, language] : all.filter(other)));
    },
    trigger: () => {
      completion.drop();
      return server.trigger();
    },
    restart: async () => {
      await server.stop();
      await server.execute("restartDaemon");
    },
    status: showStatus,
    model: async () => {
      const name = await server.execute("chooseModel");
      if (typeof name === "string") {
        await change<string>("model", () => name);
      }
    },
    prime: () => {
      const where = { location: vscode.ProgressLocation.Notification, title: "localspec: learning the workspace", cancellable: true };
      return vscode.window.withProgress(where, (_, token) => server.execute("primeWorkspace", token));
    },
    forget: () => server.execute("forgetWorkspace"),
  };

  context.subscriptions.push(
    log,
    status.item,
    ...Object.entries(COMMANDS).map(([name, run]) => vscode.commands.registerCommand(`localspec.${name}`, run)),
    vscode.window.onDidChangeActiveTextEditor((editor) => focus(editor)),
    vscode.window.onDidChangeTextEditorSelection(wait),
    vscode.workspace.onDidChangeTextDocument((event) => completion.changed(event)),
    vscode.workspace.onDidChangeConfiguration(configure),
  );
  void focus();
}

export function deactivate(): Promise<void> {
  return server.stop();
}
