/** The wire's messages, as far as an editor needs them. */

export const PROTOCOL = 1;

export interface File {
  readonly path: string;
  readonly text: string;
}

export type Trigger = "automatic" | "invoked";

export interface CompletionParams {
  readonly path: string;
  readonly language: string;
  readonly prefix: string;
  readonly suffix: string;
  readonly extra: readonly File[];
  readonly max_ms: number;
  readonly trigger: Trigger;
  readonly n?: number;
  readonly multiline?: false;
  readonly options?: { readonly model: string };
}

export interface Item {
  readonly id: string;
  readonly text: string;
}

export interface Stats {
  readonly drafted: number;
  readonly accepted: number;
  readonly time_saved_s: number | null;
  readonly speculation_off_reason: string | null;
}

export interface Completions {
  readonly items: readonly Item[];
  readonly stats: Stats;
  readonly result: { readonly model: string; readonly draft: string | null; readonly finish_reason: string };
  readonly source: "model" | "cache" | "type-through";
  /** The daemon's own time; missing from older daemons. */
  readonly elapsed_ms?: number;
}

export type FeedbackEvent = "shown" | "accepted" | "partial" | "dismissed";

export interface ModelProgress {
  readonly model: string;
  readonly stage: string;
  readonly fraction: number;
}

export interface ModelDescription {
  readonly id: string;
  readonly names?: readonly string[];
  readonly format: string;
  readonly quantisation?: string | null;
  readonly size: number;
  readonly fim: boolean;
  readonly loaded: boolean;
  readonly problem?: string | null;
}
