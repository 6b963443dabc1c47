/** What is offered at a place, and how far somebody has typed along it. */

import type { Item } from "./protocol";

/** The text around a cursor of a document, `prefix` from the beginning of line `start`. */
export interface Place {
  readonly document: string;
  readonly start: number;
  readonly prefix: string;
  readonly suffix: string;
}

/** An item with plain line ends; `before` of the code points of its `original` stand in the text already. */
export interface Offered extends Item {
  readonly original: string;
  readonly before: number;
}

/** An item along which was typed: `taken` of its text, and the brackets after the cursor that it has, too. */
export interface Followed {
  readonly item: Offered;
  readonly taken: number;
  readonly closers: number;
}

const CLOSERS = /^[)\]}>"'`]{1,3}$/;

export class Offer {
  readonly items: readonly Offered[];

  constructor(
    readonly place: Place,
    items: readonly Offered[],
    /** Whether it has all that can be cycled through. */
    readonly complete: boolean = false,
  ) {
    const isFirst = (item: Offered, i: number): boolean =>
      items.findIndex((other) => other.text === item.text) === i;
    this.items = items.filter((item, i) => item.text !== "" && isFirst(item, i));
  }

  /** The items that go on from here, as long as the text is theirs. */
  follow(now: Place): Followed[] {
    if (now.document !== this.place.document || now.start !== this.place.start) {
      return [];
    }
    const prefix = plain(now.prefix);
    const asked = plain(this.place.prefix);
    if (!prefix.startsWith(asked)) {
      return [];
    }
    const typed = prefix.slice(asked.length);
    const closers = closed(plain(now.suffix), plain(this.place.suffix));
    return closers === undefined
      ? []
      : this.items
          .filter((item) => item.text.startsWith(typed) && contains(item.text.slice(typed.length), closers))
          .map((item) => ({ item, taken: typed.length, closers: closers.length }));
  }
}

export function offered(item: Item): Offered {
  return { id: item.id, text: plain(item.text), original: item.text, before: 0 };
}

/** What is left of an item, as one of its own. */
export function rest(followed: Followed): Offered {
  const { item, taken } = followed;
  return {
    id: item.id,
    text: item.text.slice(taken),
    original: item.original.slice(unitsOf(item.original, taken)),
    before: codePoints(followed),
  };
}

/** Whether there is any of it left to show. */
export function goesOn(followed: Followed): boolean {
  return followed.taken < followed.item.text.length;
}

/** The code points of an item's text that were taken, from its very beginning. */
export function codePoints({ item, taken }: Followed): number {
  return item.before + [...item.original.slice(0, unitsOf(item.original, taken))].length;
}

/** What is shown in the cursor's line: an editor wants one range in one line. */
export function lineOf({ item, taken }: Followed): { text: string; column: number } {
  const begin = taken === 0 ? 0 : item.text.lastIndexOf("\n", taken - 1) + 1;
  return { text: item.text.slice(begin), column: begin - taken };
}

/** How many units of a text with any line ends are `taken` units of it with plain ones. */
function unitsOf(text: string, taken: number): number {
  let units = 0;
  for (let left = taken; left > 0; left -= 1) {
    units += text.startsWith("\r\n", units) ? 2 : 1;
  }
  return units;
}

/** The brackets and quotes that an editor has put between the cursor and what stood there. */
function closed(now: string, asked: string): string | undefined {
  if (now === asked) {
    return "";
  }
  const more = now.length - asked.length;
  const added = now.slice(0, Math.max(0, more));
  return now.endsWith(asked) && CLOSERS.test(added) ? added : undefined;
}

/** Whether all of `letters` come in a text, in this order. */
function contains(text: string, letters: string): boolean {
  let at = -1;
  return [...letters].every((letter) => (at = text.indexOf(letter, at + 1)) >= 0);
}

function plain(text: string): string {
  return text.replaceAll("\r\n", "\n");
}
