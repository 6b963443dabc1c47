/** The current settings of the user. */

import * as vscode from "vscode";

import { DEFAULTS, type Key, misfit, type Values, valueOf } from "./values";

const SECTION = "localspec";

export class Settings {
  constructor(private readonly scope?: vscode.ConfigurationScope) {}

  get enabled(): boolean {
    return this.get("enabled");
  }

  get automatic(): boolean {
    return this.get("automatic");
  }

  get excludedLanguages(): string[] {
    return this.get("excludedLanguages");
  }

  get model(): string {
    return this.get("model").trim();
  }

  get multiline(): boolean {
    return this.get("multiline");
  }

  get maxMs(): number {
    return this.get("maxMs");
  }

  get command(): string {
    return this.get("command");
  }

  /** Change a setting for the user; if the workspace sets it, in the workspace. */
  async set(key: Key, value: unknown): Promise<void> {
    const section = vscode.workspace.getConfiguration(SECTION, this.scope);
    const inWorkspace = section.inspect(key)?.workspaceValue !== undefined;
    await section.update(key, value, inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global);
  }

  private get<K extends Key>(key: K): Values[K] {
    return valueOf(key, vscode.workspace.getConfiguration(SECTION, this.scope).get(key));
  }
}

/** Sentences about wrong values, of all settings or of those that have changed. */
export function misfits(changed?: vscode.ConfigurationChangeEvent): string[] {
  const section = vscode.workspace.getConfiguration(SECTION);
  return (Object.keys(DEFAULTS) as Key[])
    .filter((key) => changed?.affectsConfiguration(`${SECTION}.${key}`) ?? true)
    .map((key) => misfit(key, section.get(key)))
    .filter((sentence) => sentence !== undefined);
}

export function touches(event: vscode.ConfigurationChangeEvent): boolean {
  return event.affectsConfiguration(SECTION);
}
