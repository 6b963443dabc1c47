/** Statistics of this editor's completions, and their texts for the status item. */

import type { Completions } from "./protocol";

export type State =
  | { readonly kind: "off"; readonly why: string }
  | { readonly kind: "waiting" }
  | { readonly kind: "connecting" }
  | { readonly kind: "loading"; readonly fraction: number }
  | { readonly kind: "thinking" }
  | { readonly kind: "idle" }
  | { readonly kind: "error"; readonly advice: string };

export class Tally {
  completions = 0;
  drafted = 0;
  accepted = 0;
  model: string | undefined;
  draft: string | null = null;
  private savedS: number | undefined;
  private offReason: string | null = null;
  private last: string | undefined;

  /** Add an answer, which took `elapsed` milliseconds in the editor; returns a description without its text. */
  add(answer: Completions, elapsed: number): string {
    const { items, source, elapsed_ms } = answer;
    const own = elapsed_ms === undefined ? "" : `, ${elapsed_ms.toFixed(1)} ms in the daemon`;
    const characters = [...(items[0]?.text ?? "")].length;
    this.last = `${elapsed.toFixed(1)} ms in the editor${own}, source ${source}, ${characters} characters`;
    this.count(answer);
    return this.last;
  }

  private count({ result, stats, source }: Completions): void {
    this.completions += 1;
    if (source !== "model") {
      this.model ??= result.model; // the requested one: no model was used
      return;
    }
    this.model = result.model;
    this.draft = result.draft;
    this.drafted += stats.drafted;
    this.accepted += stats.accepted;
    this.offReason = stats.speculation_off_reason;
    if (stats.time_saved_s !== null) {
      this.savedS = (this.savedS ?? 0) + stats.time_saved_s;
    }
  }

  /** The statistics that are known, one a line. */
  lines(): string[] {
    const lines = [`Model: ${this.model ?? "no completion yet"}`];
    if (this.draft !== null) {
      lines.push(`Draft: ${this.draft}`);
    }
    if (this.completions > 0) {
      lines.push(`Completions: ${this.completions}`);
    }
    if (this.drafted > 0) {
      lines.push(`Drafts accepted: ${this.accepted} of ${this.drafted} tokens (${this.acceptance} %)`);
    }
    if (this.savedS !== undefined) {
      lines.push(`Time saved: ${seconds(this.savedS)}`);
    }
    if (this.offReason !== null) {
      lines.push(`Speculation is off: ${this.offReason}`);
    }
    if (this.last !== undefined) {
      lines.push(`Last completion: ${this.last}`);
    }
    return lines;
  }

  /** The text after the name in the status bar: acceptance and time saved, if known. */
  get short(): string {
    const parts = this.drafted > 0 ? [`${this.acceptance} %`] : [];
    if (this.savedS !== undefined && this.savedS >= 1) {
      parts.push(seconds(this.savedS));
    }
    return parts.join(" · ");
  }

  private get acceptance(): number {
    return Math.round((100 * this.accepted) / this.drafted);
  }
}

/** The status item's text; VS Code draws the `$(icons)`. */
export function label(state: State, tally: Tally): string {
  switch (state.kind) {
    case "off":
      return "$(circle-slash) localspec";
    case "error":
      return "$(warning) localspec";
    case "loading":
      return `$(loading~spin) localspec ${Math.round(100 * state.fraction)} %`;
    case "connecting":
      return "$(loading~spin) localspec";
    default:
      return [`$(${state.kind === "thinking" ? "ellipsis" : "sparkle"}) localspec`, tally.short].join(" ").trim();
  }
}

export function sentence(state: State): string {
  switch (state.kind) {
    case "off":
      return state.why;
    case "error":
      return state.advice;
    case "loading":
      return "The model is being loaded.";
    case "connecting":
      return "Connecting to the daemon.";
    case "waiting":
      return "Not connected to the daemon; the next completion starts it.";
    case "thinking":
      return "Waiting for the model.";
    case "idle":
      return "Ready.";
  }
}

function seconds(value: number): string {
  if (Math.abs(value) < 0.05) {
    return "0 s";
  }
  return value < 60 ? `${value.toFixed(1)} s` : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}
