/** The language server `localspec lsp`, started when there is a text to complete, and again after it ended. */

import { type ChildProcess, spawn } from "node:child_process";
import { homedir } from "node:os";
import { join } from "node:path";

import * as vscode from "vscode";
import {
  ExecuteCommandRequest,
  InlineCompletionRequest,
  LanguageClient,
  type Middleware,
  RevealOutputChannelOn,
  type ShowMessageRequestParams,
  State,
} from "vscode-languageclient/node";

import { programName, serverSettings } from "./settings";
import type { Report, Status } from "./status";

/** Documents that users write in. */
const SELECTOR = ["file", "untitled", "vscode-notebook-cell", "vscode-remote", "vscode-vfs"].map((scheme) => ({ scheme }));

/** The client, whose own errors stand in the log alone. */
class Client extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

export class Server {
  private client: Client | undefined;
  private starting: Promise<Client | undefined> | undefined;

  constructor(
    private readonly middleware: Middleware,
    private readonly status: Status,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  /** The client; undefined if the server cannot be started. At the user's request (`isAsked`) one that has failed is started again. */
  async start(isAsked = false): Promise<Client | undefined> {
    const starting = (this.starting ??= this.open());
    const client = await starting;
    if (!isAsked || client?.isRunning() || (await client?.start().then(() => true, () => false))) {
      return client;
    }
    if (this.starting === starting) {
      this.starting = this.open();
    }
    return this.starting;
  }

  /** End the server; the daemon keeps running. */
  async stop(): Promise<void> {
    const client = await this.starting;
    this.client = this.starting = undefined;
    await client?.stop().catch(() => undefined); // it has ended already
  }

  /** Have a server that runs know of an event. */
  notify(method: string, params: object): void {
    if (this.client?.isRunning()) {
      void this.client.sendNotification(method, params);
    }
  }

  /** Have the editor request items at the cursor, also for a text whose answer it has: that is one of another provider then. */
  async trigger(): Promise<void> {
    const feature = (await this.start(true))?.getFeature(InlineCompletionRequest.method);
    feature?.clear();
    feature?.register({ id: "localspec", registerOptions: { documentSelector: SELECTOR } });
    await vscode.commands.executeCommand("editor.action.inlineSuggest.trigger");
  }

  /** Run a command of the server, which reports its failure. */
  async execute(command: string, token?: vscode.CancellationToken): Promise<unknown> {
    const client = await this.start(true);
    try {
      return await client?.sendRequest(ExecuteCommandRequest.type, { command: `localspec.${command}`, arguments: [] }, token);
    } catch (error) {
      if (token?.isCancellationRequested !== true) {
        this.fail(String(error));
      }
      return undefined;
    }
  }

  private async open(): Promise<Client | undefined> {
    const client = new Client("localspec", "localspec", spawnServer, {
      documentSelector: SELECTOR,
      initializationOptions: serverSettings,
      middleware: this.middleware,
      outputChannel: this.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
    });
    client.onNotification("didChangeStatus", (report: Report) => this.status.show(report));
    client.onRequest("window/showMessageRequest", async ({ message, actions = [] }: ShowMessageRequestParams) => {
      const title = await vscode.window.showQuickPick(actions.map((action) => action.title), { title: `localspec: ${message}` });
      return title === undefined ? null : { title };
    });
    client.onDidChangeState(({ newState }) => {
      if (newState === State.Stopped) {
        this.status.show({ busy: false, message: "not running", kind: "Normal" });
      }
    });
    try {
      await client.start();
      return (this.client = client);
    } catch (error) {
      this.fail(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  private fail(message: string): void {
    this.status.show({ busy: false, message, kind: "Error" });
    void vscode.window.showWarningMessage(`localspec: ${message}`, "Show Log").then((choice) => choice && this.log.show());
  }
}

/** Start the first program there is. */
async function spawnServer(): Promise<ChildProcess> {
  const command = programName();
  for (const program of candidates(command)) {
    const child = spawn(program, ["lsp"], { windowsHide: true });
    const isThere = await new Promise<boolean>((resolve, reject) => {
      child.once("spawn", () => resolve(true));
      child.once("error", (error: NodeJS.ErrnoException) => (error.code === "ENOENT" ? resolve(false) : reject(error)));
    });
    if (isThere) {
      return child;
    }
  }
  throw new Error(`The command ${command} was not found. Install localspec (its README, “Install”), or set localspec.command to its path.`);
}

/** The paths that `command` may mean, the likeliest first. */
function candidates(command: string): string[] {
  if (command.startsWith("~/")) {
    return [join(homedir(), command.slice(2))];
  }
  return /[\\/]/.test(command) ? [command] : [command, join(homedir(), ".local", "bin", command)];
}
