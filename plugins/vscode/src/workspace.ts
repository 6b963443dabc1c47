/** The daemon's workspace of a folder. */

import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";

/** The git root that holds a folder, as a real path; outside of any the folder itself. */
export function workspaceOf(folder: string): string {
  return gitRoot(existsSync(folder) ? realpathSync(folder) : folder) ?? folder;
}

/** In a worktree and a submodule `.git` is a file. */
function gitRoot(directory: string): string | undefined {
  if (existsSync(join(directory, ".git"))) {
    return directory;
  }
  const above = dirname(directory);
  return above === directory ? undefined : gitRoot(above);
}
