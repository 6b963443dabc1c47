/** The values that settings may have: a file of settings holds whatever somebody wrote into it. */

/** What counts where nothing is said, or something of another kind. */
export const DEFAULTS = {
  enabled: true,
  automatic: true,
  excludedLanguages: [] as string[],
  model: "",
  multiline: true,
  maxMs: 5000,
  command: "localspec",
};

export type Values = typeof DEFAULTS;
export type Key = keyof Values;

/** What a setting says; if that is of another kind than it can be, as if nothing were said. */
export function valueOf<K extends Key>(key: K, said: unknown): Values[K] {
  return misfit(key, said) === undefined ? ((said ?? DEFAULTS[key]) as Values[K]) : DEFAULTS[key];
}

/** What is wrong with what a setting says, if anything is. */
export function misfit(key: Key, said: unknown): string | undefined {
  const expected = kindOf(DEFAULTS[key]);
  const fits = said === undefined || said === null || kindOf(said) === expected;
  return fits ? undefined : `The setting localspec.${key} is no ${expected}: it counts as not set.`;
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) {
    return "list";
  }
  return Number.isInteger(value) ? "integer" : typeof value;
}
