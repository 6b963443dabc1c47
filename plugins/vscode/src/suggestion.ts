/** The items offered at a place, and how far the user has typed along them. */

import type { Item } from "./protocol";

/** The text around a cursor of a document, `prefix` from the beginning of line `start`. */
export interface Place {
  readonly document: string;
  readonly start: number;
  readonly prefix: string;
  readonly suffix: string;
}

/** An item with LF line ends; `before` code points of the daemon's item are in the text already. */
export interface Offered extends Item {
  readonly original: string;
  readonly before: number;
}

/** An item that fits the typed text: `taken` units of it, and brackets after the cursor that it has, too. */
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
    /** True if it has all items that can be cycled through. */
    readonly complete: boolean = false,
  ) {
    const isFirst = (item: Offered, i: number): boolean =>
      items.findIndex((other) => other.text === item.text) === i;
    this.items = items.filter((item, i) => item.text !== "" && isFirst(item, i));
  }

  /** The items that fit the text at `now`. */
  follow(now: Place): Followed[] {
    if (now.document !== this.place.document || now.start !== this.place.start) {
      return [];
    }
    const prefix = plain(now.prefix);
    const before = plain(this.place.prefix);
    if (!prefix.startsWith(before)) {
      return [];
    }
    const typed = prefix.slice(before.length);
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

/** The rest of an item, as an item. */
export function rest(followed: Followed): Offered {
  const { item, taken } = followed;
  return {
    id: item.id,
    text: item.text.slice(taken),
    original: item.original.slice(unitsOf(item.original, taken)),
    before: codePoints(followed),
  };
}

/** Return true if some of it is left to show. */
export function goesOn(followed: Followed): boolean {
  return followed.taken < followed.item.text.length;
}

/** The code points of the daemon's item in the text, from its beginning. */
export function codePoints({ item, taken }: Followed): number {
  return item.before + [...item.original.slice(0, unitsOf(item.original, taken))].length;
}

/** The item's text from the beginning of the cursor's line on: VS Code allows a range in one line only. */
export function lineOf({ item, taken }: Followed): { text: string; column: number } {
  const begin = taken === 0 ? 0 : item.text.lastIndexOf("\n", taken - 1) + 1;
  return { text: item.text.slice(begin), column: begin - taken };
}

/** The units of a text with its own line ends that correspond to `taken` units with LF ones. */
function unitsOf(text: string, taken: number): number {
  let units = 0;
  for (let left = taken; left > 0; left -= 1) {
    units += text.startsWith("\r\n", units) ? 2 : 1;
  }
  return units;
}

/** Brackets and quotes that the editor has inserted after the cursor; undefined if other text was. */
function closed(now: string, before: string): string | undefined {
  if (now === before) {
    return "";
  }
  const more = now.length - before.length;
  const added = now.slice(0, Math.max(0, more));
  return now.endsWith(before) && CLOSERS.test(added) ? added : undefined;
}

/** Return true if a text contains all of `letters` in this order. */
function contains(text: string, letters: string): boolean {
  let at = -1;
  return [...letters].every((letter) => (at = text.indexOf(letter, at + 1)) >= 0);
}

function plain(text: string): string {
  return text.replaceAll("\r\n", "\n");
}
