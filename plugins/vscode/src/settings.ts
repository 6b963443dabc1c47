/** The person's settings, as they are now. */

import * as vscode from "vscode";

const SECTION = "localspec";

export class Settings {
  constructor(private readonly scope?: vscode.ConfigurationScope) {}

  get enabled(): boolean {
    return this.get("enabled", true);
  }

  get automatic(): boolean {
    return this.get("automatic", true);
  }

  get excludedLanguages(): string[] {
    return this.get<string[]>("excludedLanguages", []);
  }

  get model(): string {
    return this.get("model", "").trim();
  }

  get multiline(): boolean {
    return this.get("multiline", true);
  }

  get maxMs(): number {
    return this.get("maxMs", 5000);
  }

  get command(): string {
    return this.get("command", "localspec");
  }

  /** Change one for this person, in all workspaces; where a workspace says otherwise, there. */
  async set(key: string, value: unknown): Promise<void> {
    const section = vscode.workspace.getConfiguration(SECTION, this.scope);
    const inWorkspace = section.inspect(key)?.workspaceValue !== undefined;
    await section.update(key, value, inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global);
  }

  private get<T>(key: string, fallback: T): T {
    return vscode.workspace.getConfiguration(SECTION, this.scope).get<T>(key) ?? fallback;
  }
}

export function touches(event: vscode.ConfigurationChangeEvent): boolean {
  return event.affectsConfiguration(SECTION);
}
