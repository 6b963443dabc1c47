/** The settings of the user. */

import * as vscode from "vscode";

export const SECTION = "localspec";

/** The settings that the server has; it checks them, and reports wrong ones. */
export function serverSettings(): object {
  const section = vscode.workspace.getConfiguration(SECTION);
  const shared = ["enabled", "automatic", "multiline", "maxMs", "excludedLanguages"].map((key) => [key, section.get(key)]);
  return { ...Object.fromEntries(shared), model: section.get("model") || null };
}

/** The command `localspec`. */
export function programName(): string {
  return String(vscode.workspace.getConfiguration(SECTION).get("command") ?? "").trim() || "localspec";
}

/** Change a setting for the user; if the workspace sets it, in the workspace. */
export async function change<T>(key: string, changed: (value: T) => T): Promise<void> {
  const section = vscode.workspace.getConfiguration(SECTION);
  const { Workspace, Global } = vscode.ConfigurationTarget;
  const target = section.inspect(key)?.workspaceValue === undefined ? Global : Workspace;
  await section.update(key, changed(section.get(key) as T), target);
}
