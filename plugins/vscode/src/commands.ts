/** The commands of the extension. */

import * as vscode from "vscode";

import { ACCEPTED, type Completion } from "./completion";
import type { Link } from "./link";
import type { ModelDescription } from "./protocol";
import { Settings } from "./settings";
import type { Status } from "./status";
import { workspaceOf } from "./workspace";

const NEVER = new vscode.CancellationTokenSource().token;

export class Commands {
  constructor(
    private readonly link: Link,
    private readonly completion: Completion,
    private readonly status: Status,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  register(): vscode.Disposable {
    const commands: Record<string, (...words: never[]) => unknown> = {
      "localspec.toggle": () => this.toggle(),
      "localspec.toggleLanguage": () => this.toggleLanguage(),
      "localspec.trigger": () => this.completion.trigger(),
      "localspec.restart": () => this.restart(),
      "localspec.showStats": () => this.showStats(),
      "localspec.chooseModel": () => this.chooseModel(),
      "localspec.primeWorkspace": () => this.prime(),
      "localspec.forgetWorkspace": () => this.forget(),
      [ACCEPTED]: (item: string) => this.completion.accepted(item),
    };
    return vscode.Disposable.from(
      ...Object.entries(commands).map(([name, run]) => vscode.commands.registerCommand(name, run)),
    );
  }

  private async toggle(): Promise<void> {
    const settings = new Settings();
    await settings.set("enabled", !settings.enabled);
  }

  private async toggleLanguage(): Promise<void> {
    const language = vscode.window.activeTextEditor?.document.languageId;
    if (language === undefined) {
      return;
    }
    const settings = new Settings();
    const excluded = settings.excludedLanguages;
    const others = excluded.filter((each) => each !== language);
    await settings.set("excludedLanguages", others.length < excluded.length ? others : [...excluded, language]);
  }

  private async restart(): Promise<void> {
    const title = "localspec: the daemon is being restarted";
    const location = vscode.ProgressLocation.Window;
    if (await vscode.window.withProgress({ location, title }, () => this.link.restart())) {
      void vscode.window.showInformationMessage("localspec: the daemon was restarted.");
    }
  }

  private async showStats(): Promise<void> {
    const actions: (vscode.QuickPickItem & { command?: string })[] = [
      ...this.status.lines.map((line) => ({ label: line })),
      { label: "", kind: vscode.QuickPickItemKind.Separator },
      { label: "$(circle-slash) Toggle Completions", command: "localspec.toggle" },
      { label: "$(symbol-misc) Toggle Completions for This Language", command: "localspec.toggleLanguage" },
      { label: "$(server) Choose Model", command: "localspec.chooseModel" },
      { label: "$(debug-restart) Restart Daemon", command: "localspec.restart" },
      { label: "$(output) Show Log", command: SHOW_LOG },
    ];
    const chosen = await vscode.window.showQuickPick(actions, { title: "localspec" });
    if (chosen?.command === SHOW_LOG) {
      this.log.show();
    } else if (chosen?.command !== undefined) {
      await vscode.commands.executeCommand(chosen.command);
    }
  }

  private async chooseModel(): Promise<void> {
    const listed = await this.request<{ models: ModelDescription[] }>("models/list");
    if (listed === undefined) {
      return;
    }
    const settings = new Settings();
    const choice = await vscode.window.showQuickPick(choices(listed.models, settings.model), {
      title: "localspec: model for completions",
      placeHolder: "Fill-in-the-middle models",
    });
    if (choice !== undefined) {
      await settings.set("model", choice.model);
      const model = choice.model === "" ? "the model of localspec's own settings" : choice.model;
      vscode.window.setStatusBarMessage(`localspec: completions come from ${model}`, SHOWN_MS);
    }
  }

  private async prime(): Promise<void> {
    const root = await folder();
    if (root === undefined) {
      return;
    }
    const title = `localspec: learning ${root}`;
    const where = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
    const primed = await vscode.window.withProgress(where, (_, token) =>
      this.request<{ files: number; tokens: number }>("memory/prime", { paths: [root] }, token),
    );
    if (primed !== undefined) {
      void vscode.window.showInformationMessage(`localspec: learnt ${primed.tokens} tokens of ${primed.files} files.`);
    }
  }

  private async forget(): Promise<void> {
    const root = await folder(workspaceOf);
    if (root === undefined) {
      return;
    }
    const yes = "Forget";
    const question = `Forget all that localspec has learnt in ${root}?`;
    if ((await vscode.window.showWarningMessage(question, { modal: true }, yes)) !== yes) {
      return;
    }
    const forgotten = await this.request<{ forgotten: number; unit: string }>("memory/forget", { workspace: root });
    if (forgotten !== undefined) {
      void vscode.window.showInformationMessage(`localspec: forgot ${forgotten.forgotten} ${forgotten.unit} of ${root}.`);
    }
  }

  /** Send a request of the user: at once, and with a failure shown. */
  private request<T>(method: string, params?: object, token: vscode.CancellationToken = NEVER): Promise<T | undefined> {
    return this.link.tryTo(() => this.link.request<T>(method, params, token, true), true);
  }
}

const SHOW_LOG = "log";

/** Time a confirmation stays in the status bar. */
const SHOWN_MS = 5000;

interface Choice extends vscode.QuickPickItem {
  readonly model: string;
}

function choices(models: readonly ModelDescription[], current: string): Choice[] {
  const usable = models.filter((each) => each.fim && !each.problem);
  const configured: Choice = { label: "As configured", description: "the model in localspec's own settings", model: "" };
  const all = usable.map((each): Choice => {
    const name = each.names?.[0] ?? each.id;
    const size = `${(each.size / 1e9).toFixed(1)} GB`;
    const facts = [each.format, each.quantisation, size, each.loaded ? "loaded" : undefined];
    return { label: name, description: facts.filter(Boolean).join(", "), model: name };
  });
  return [configured, ...all].map((each) => (each.model === current ? { ...each, detail: "chosen" } : each));
}

/** An open folder of this computer, as `nameOf` names it; the user chooses among several. */
async function folder(nameOf = (path: string): string => path): Promise<string | undefined> {
  const local = (vscode.workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === "file");
  const names = [...new Set(local.map(({ uri }) => nameOf(uri.fsPath)))];
  if (names.length === 0) {
    void vscode.window.showInformationMessage("localspec: no folder of this computer is open.");
  }
  return names.length > 1 ? vscode.window.showQuickPick(names, { title: "localspec: choose a folder" }) : names[0];
}
