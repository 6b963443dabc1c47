/** Types and defaults of settings: a settings file may hold values of any type. */

/** The values of settings that are not set, or are of a wrong type. */
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

/** The value of a setting; its default if it is not set or of a wrong type. */
export function valueOf<K extends Key>(key: K, given: unknown): Values[K] {
  return misfit(key, given) === undefined ? ((given ?? DEFAULTS[key]) as Values[K]) : DEFAULTS[key];
}

/** A sentence about a value of a wrong type; undefined if it is right. */
export function misfit(key: Key, given: unknown): string | undefined {
  const expected = kindOf(DEFAULTS[key]);
  const fits = given === undefined || given === null || kindOf(given) === expected;
  return fits ? undefined : `The setting localspec.${key} is not of type ${expected}: its default is used.`;
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) {
    return "list";
  }
  return Number.isInteger(value) ? "integer" : typeof value;
}
