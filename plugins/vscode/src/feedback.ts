/** The events of the shown suggestion, each reported once, in code points of the item. */

import type { FeedbackEvent } from "./protocol";

export type Report = (item: string, event: FeedbackEvent, chars?: number) => void;

export class Feedback {
  private item: string | undefined;
  private isShown = false;
  private taken = 0;
  private reported = 0;

  constructor(private readonly report: Report) {}

  /** Take the offered item; a different one before it is left. */
  offer(item: string): void {
    if (item !== this.item) {
      this.leave();
      this.item = item;
    }
  }

  /** Report that the item is shown. */
  shown(item: string): void {
    if (item === this.item && !this.isShown) {
      this.isShown = true;
      this.report(item, "shown");
    }
  }

  /** Take the items that fit the text. If the current one is not among them, the user has cycled to the first. */
  along(items: readonly string[]): void {
    const [first] = items;
    if (first !== undefined && !items.some((item) => item === this.item)) {
      this.offer(first);
    }
  }

  /** Take the code points that are in the text; `byCommand` if a word or a line was accepted, not typed. */
  took(item: string, chars: number, byCommand: boolean): void {
    if (item !== this.item) {
      return;
    }
    this.taken = chars;
    if (byCommand && chars > this.reported) {
      this.shown(item);
      this.reported = chars;
      this.report(item, "partial", chars);
    }
  }

  accepted(item: string): void {
    this.offer(item);
    this.shown(item);
    this.report(item, "accepted");
    this.item = undefined;
    this.clear();
  }

  /** End the item: text typed along it counts as accepted. */
  leave(): void {
    const { item, taken, reported } = this;
    if (item !== undefined && taken > reported) {
      this.shown(item);
      this.report(item, "partial", taken);
    } else if (item !== undefined && this.isShown && reported === 0) {
      this.report(item, "dismissed");
    }
    this.item = undefined;
    this.clear();
  }

  private clear(): void {
    this.isShown = false;
    this.taken = 0;
    this.reported = 0;
  }
}
