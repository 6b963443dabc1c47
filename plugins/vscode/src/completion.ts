/** The completion shown: its rest while the user types along it, and what became of it. */

import * as vscode from "vscode";
import type { Middleware } from "vscode-languageclient/node";

/** An item that completes the text from `start` on, an offset in its document. */
interface Offered {
  readonly start: number;
  readonly text: string;
  readonly command: vscode.Command;
}

/** The items of one place; `end` is that of the text inserted since. */
interface Offer {
  readonly document: vscode.TextDocument;
  readonly start: number;
  readonly items: readonly Offered[];
  /** True if it has all items that can be cycled through. */
  readonly isComplete: boolean;
  end: number;
}

/** An item that goes on after `typed`, which is in the text; `closers` after the cursor are in the text and in the item. */
interface Followed {
  readonly item: Offered;
  readonly typed: string;
  readonly closers: number;
}

type Provide = NonNullable<Middleware["provideInlineCompletionItems"]>;

/** Brackets and quotes that the editor closes. */
const CLOSERS = /^[)\]}>"'`]{0,3}$/;
const NEWLINE = /^\r?\n[ \t]*$/;

export class Completion {
  private offer: Offer | undefined;
  /** The item that was reported as shown last. */
  private shown: Offered | undefined;

  constructor(private readonly notify: (method: string, params: object) => void) {}

  /** Provide the rest of an item that is typed along, or else the server's items. */
  provide: Provide = async (document, position, context, token, ask) => {
    const selected = context.selectedCompletionInfo;
    let followed = this.follow(document, position, selected);
    // The editor requests all items to cycle through in one call.
    const isCycling = context.triggerKind === vscode.InlineCompletionTriggerKind.Invoke && this.offer?.isComplete !== true;
    if (followed.length === 0 || isCycling) {
      const { version } = document;
      const answer = await ask(document, position, context, token);
      if (answer === null || answer === undefined || token.isCancellationRequested || document.version !== version) {
        return undefined;
      }
      this.keep(document, position, Array.isArray(answer) ? answer : answer.items, isCycling);
      followed = this.follow(document, position, selected);
    }
    const [first] = followed;
    if (first !== undefined && first.item !== this.shown) {
      this.shown = first.item;
      this.notify("textDocument/didShowCompletion", { item: first.item });
    }
    return followed.map((each) => itemOf(each, position, selected));
  };

  /** Drop the items. */
  drop(): void {
    this.offer = undefined;
  }

  /** Follow a change of the text; report a word or a line that was accepted, not typed. */
  changed({ document, contentChanges }: vscode.TextDocumentChangeEvent): void {
    const { offer } = this;
    const [first] = contentChanges;
    if (offer?.document !== document || first === undefined) {
      return;
    }
    for (const { rangeOffset, rangeLength, text } of contentChanges) {
      if (rangeOffset < offer.start || rangeOffset + rangeLength > offer.end) {
        return this.drop();
      }
      offer.end += text.length - rangeLength;
    }
    if ([...first.text].length > 1 && !NEWLINE.test(first.text)) {
      const [followed] = this.follow(document, document.positionAt(first.rangeOffset + first.text.length));
      if (followed !== undefined) {
        const { item, typed } = followed;
        this.notify("textDocument/didPartiallyAcceptCompletion", { item, acceptedLength: typed.length });
      }
    }
  }

  /** Offer items, after those that fit the text already. */
  private keep(document: vscode.TextDocument, position: vscode.Position, answer: vscode.InlineCompletionItem[], isComplete: boolean): void {
    const known = this.follow(document, position);
    const rests = known.map(({ item, typed }) => item.text.slice(typed.length));
    const items = answer.map(
      ({ insertText, range, command }): Offered => ({
        start: document.offsetAt(range?.start ?? position),
        text: String(insertText),
        command: command as vscode.Command,
      }),
    );
    const at = document.offsetAt(position);
    this.offer = {
      document,
      start: Math.min(...[...known.map(({ item }) => item), ...items].map(({ start }) => start)),
      end: known.length > 0 && this.offer !== undefined ? this.offer.end : at,
      items: [...known.map(({ item }) => item), ...items.filter(({ text }) => !rests.includes(text))],
      isComplete,
    };
  }

  /** The items that go on at a position, where a selected entry of the suggest widget counts as typed. */
  private follow(document: vscode.TextDocument, position: vscode.Position, selected?: vscode.SelectedCompletionInfo): Followed[] {
    const { offer } = this;
    const at = document.offsetAt(position);
    if (offer?.document !== document || at < offer.start || at > offer.end) {
      return [];
    }
    const closers = document.getText(new vscode.Range(position, document.positionAt(offer.end)));
    if (!CLOSERS.test(closers)) {
      return [];
    }
    const followed = offer.items.map((item) => {
      const begun = document.getText(new vscode.Range(document.positionAt(item.start), selected?.range.start ?? position));
      const typed = begun.replaceAll("\r\n", "\n") + (selected?.text ?? "");
      return { item, typed, closers: closers.length };
    });
    return followed.filter(({ item: { text }, typed }) => text.startsWith(typed) && text !== typed && contains(text.slice(typed.length), closers));
  }
}

/** The item as the editor draws it: from the beginning of the cursor's line on, because a range has one line. */
function itemOf({ item: { text, command }, typed, closers }: Followed, position: vscode.Position, selected?: vscode.SelectedCompletionInfo): vscode.InlineCompletionItem {
  if (selected !== undefined) {
    return new vscode.InlineCompletionItem(selected.text + text.slice(typed.length), selected.range, command);
  }
  const begin = typed.lastIndexOf("\n") + 1;
  const range = new vscode.Range(position.translate(0, begin - typed.length), position.translate(0, closers));
  return new vscode.InlineCompletionItem(text.slice(begin), range, command);
}

/** Return true if a text contains all of `letters` in this order. */
function contains(text: string, letters: string): boolean {
  let at = -1;
  return [...letters].every((letter) => (at = text.indexOf(letter, at + 1)) >= 0);
}
