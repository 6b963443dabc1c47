/** What became of the suggestion that is shown: told once, in code points of the item. */

import type { FeedbackEvent } from "./protocol";

export type Tell = (item: string, event: FeedbackEvent, chars?: number) => void;

export class Feedback {
  private item: string | undefined;
  private isShown = false;
  private taken = 0;
  private told = 0;

  constructor(private readonly tell: Tell) {}

  /** Another item is offered; the one before is gone, unless it is the same one. */
  offer(item: string): void {
    if (item !== this.item) {
      this.leave();
      this.item = item;
    }
  }

  /** It was seen. */
  shown(item: string): void {
    if (item === this.item && !this.isShown) {
      this.isShown = true;
      this.tell(item, "shown");
    }
  }

  /** The text goes along these. If the current one is not among them, another was cycled to: the first of them. */
  along(items: readonly string[]): void {
    const [first] = items;
    if (first !== undefined && !items.some((item) => item === this.item)) {
      this.offer(first);
    }
  }

  /** So much of it stands in the text; `byCommand` if a word or a line was accepted, not typed. */
  took(item: string, chars: number, byCommand: boolean): void {
    if (item !== this.item) {
      return;
    }
    this.taken = chars;
    if (byCommand && chars > this.told) {
      this.shown(item);
      this.told = chars;
      this.tell(item, "partial", chars);
    }
  }

  accepted(item: string): void {
    this.offer(item);
    this.shown(item);
    this.tell(item, "accepted");
    this.item = undefined;
    this.clear();
  }

  /** It is gone: what was typed of it counts as taken. */
  leave(): void {
    const { item, taken, told } = this;
    if (item !== undefined && taken > told) {
      this.shown(item);
      this.tell(item, "partial", taken);
    } else if (item !== undefined && this.isShown && told === 0) {
      this.tell(item, "dismissed");
    }
    this.item = undefined;
    this.clear();
  }

  private clear(): void {
    this.isShown = false;
    this.taken = 0;
    this.told = 0;
  }
}
