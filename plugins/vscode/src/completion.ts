/** The provider of inline completions. */

import * as vscode from "vscode";

import { type Window, firstLine, sentPrefix, sentSuffix, windowAt } from "./context";
import { inDiff, linesOf, mayBeRead, pathOf, SELECTOR } from "./documents";
import { Feedback } from "./feedback";
import type { Link } from "./link";
import type { CompletionParams, Completions, Trigger } from "./protocol";
import { Settings } from "./settings";
import type { Status } from "./status";
import { codePoints, type Followed, goesOn, lineOf, Offer, offered, type Offered, type Place, rest } from "./suggestion";
import type { Visits } from "./visits";

/** Command that VS Code runs after an item was accepted whole; not one for users. */
export const ACCEPTED = "localspec.accepted";
/** All providers of this extension; the trigger command calls the ones named, whatever is shown already. */
const PROVIDER = "localspec.localspec:*";
const CYCLED = 3;
/** Milliseconds on the screen after which an item counts as shown. */
const SEEN_MS = 100;

/** A request: its parameters and its place. */
interface Question {
  readonly place: Place;
  readonly params: CompletionParams;
  readonly known: readonly Offered[];
}

export class Completion implements vscode.InlineCompletionItemProvider, vscode.Disposable {
  private readonly feedback: Feedback;
  private readonly listeners: vscode.Disposable;
  private registration = this.register();
  private offer: Offer | undefined;
  private seen: NodeJS.Timeout | undefined;
  /** The trigger of the next call by VS Code, if this extension has caused it. */
  private own: Trigger | undefined;
  /** The place of the last request. */
  lastPlace: { readonly document: string; readonly line: number } | undefined;

  constructor(
    private readonly link: Link,
    private readonly visits: Visits,
    private readonly status: Status,
    private readonly log: vscode.LogOutputChannel,
  ) {
    this.feedback = new Feedback((item, event, chars) => {
      this.log.debug(`feedback: ${event}${chars === undefined ? "" : ` of ${chars} characters`}`);
      void this.link.mention("completion/feedback", { item, event, ...(chars === undefined ? {} : { chars }) });
    });
    this.listeners = vscode.Disposable.from(
      vscode.workspace.onDidChangeTextDocument((event) => this.changed(event)),
      vscode.window.onDidChangeTextEditorSelection((event) => this.moved(event.textEditor)),
      vscode.window.onDidChangeActiveTextEditor((editor) => editor && this.moved(editor)),
    );
  }

  async provideInlineCompletionItems(
    document: vscode.TextDocument,
    position: vscode.Position,
    context: vscode.InlineCompletionContext,
    token: vscode.CancellationToken,
  ): Promise<vscode.InlineCompletionItem[] | undefined> {
    const own = this.own;
    this.own = undefined;
    // VS Code requests all items to cycle through in one call.
    const isCycling = own === undefined && context.triggerKind === vscode.InlineCompletionTriggerKind.Invoke;
    const trigger = own ?? (isCycling ? "invoked" : "automatic");
    const settings = new Settings(document);
    if (!settings.enabled || (trigger === "automatic" && !settings.automatic)) {
      return undefined;
    }
    if (!mayBeRead(document, settings) || inDiff()) {
      return undefined;
    }
    const selected = context.selectedCompletionInfo;
    const followed = this.fitting(document, position, selected).filter(goesOn);
    if (followed.length === 0 || (isCycling && this.offer?.complete === false)) {
      const count = isCycling ? CYCLED : 1;
      const question = this.question(document, position, selected, { trigger, count, followed });
      if (!(await this.answered(question, document, token, own === "invoked"))) {
        return undefined;
      }
    } else {
      this.log.debug(`typed along: ${followed[0]?.taken} characters`);
    }
    return this.shown(document, position, selected);
  }

  /** Request a completion at the cursor, also where none comes automatically. */
  async trigger(): Promise<void> {
    this.drop();
    // VS Code does not call a provider again that has answered for this text.
    this.registration.dispose();
    this.registration = this.register();
    await this.putQuestion("invoked");
  }

  /** Report an accepted item, and request the completion after it, which the daemon has prefetched. */
  async accepted(item: string): Promise<void> {
    this.feedback.accepted(item);
    this.drop();
    await this.putQuestion("automatic");
  }

  /** Drop the offered items, and report their end. */
  drop(): void {
    clearTimeout(this.seen);
    this.feedback.leave();
    this.offer = undefined;
  }

  dispose(): void {
    this.drop();
    this.registration.dispose();
    this.listeners.dispose();
  }

  private register(): vscode.Disposable {
    return vscode.languages.registerInlineCompletionItemProvider(SELECTOR, this);
  }

  /** Have VS Code call the provider. Older versions take it for a request to cycle through items. */
  private async putQuestion(trigger: Trigger): Promise<void> {
    this.own = trigger;
    try {
      await vscode.commands.executeCommand("editor.action.inlineSuggest.trigger", { explicit: false, providerId: PROVIDER });
    } catch (error) {
      this.log.debug(`nothing was shown: ${String(error)}`); // the editor was closed meanwhile
    } finally {
      this.own = undefined;
    }
  }

  /** The offered items that fit the text here; the selected item of the suggest widget counts as typed. */
  private fitting(
    document: vscode.TextDocument,
    position: vscode.Position,
    selected?: vscode.SelectedCompletionInfo,
  ): Followed[] {
    return this.offer?.follow(placeOf(document, position, selected, this.offer.place.start)) ?? [];
  }

  private question(
    document: vscode.TextDocument,
    position: vscode.Position,
    selected: vscode.SelectedCompletionInfo | undefined,
    how: { trigger: Trigger; count: number; followed: readonly Followed[] },
  ): Question {
    const settings = new Settings(document);
    const place = placeOf(document, position, selected);
    const params: CompletionParams = {
      ...this.context(document, place),
      max_ms: settings.maxMs,
      trigger: how.trigger,
      ...(how.count > 1 ? { n: how.count } : {}),
      ...(settings.multiline ? {} : { multiline: false }),
      ...(settings.model === "" ? {} : { options: { model: settings.model } }),
    };
    this.lastPlace = { document: place.document, line: position.line };
    return { place, params, known: how.followed.map(rest) };
  }

  /** The excerpts that are sent with a request. */
  context(document: vscode.TextDocument, window: Pick<Window, "prefix" | "suffix">) {
    return {
      path: pathOf(document.uri),
      language: document.languageId,
      prefix: sentPrefix(window.prefix),
      suffix: sentSuffix(window.suffix),
      extra: this.visits.files(document),
    };
  }

  /** Request and offer items; returns false without an answer, or if the text has changed since the request. */
  private async answered(
    { place, params, known }: Question,
    document: vscode.TextDocument,
    token: vscode.CancellationToken,
    isWaitedFor: boolean,
  ): Promise<boolean> {
    const begin = performance.now();
    const version = document.version;
    const isEager = params.trigger === "invoked";
    const answer = await this.link.tryTo(
      () => this.link.request<Completions>("completion/inline", params, token, isEager),
      isWaitedFor,
    );
    if (answer === undefined || answer.result.finish_reason === "cancelled") {
      return false;
    }
    this.log.debug(`completion: ${this.status.count(answer, performance.now() - begin)}`);
    if (token.isCancellationRequested || document.version !== version) {
      return false;
    }
    this.offer = new Offer(place, [...known, ...answer.items.map(offered)], params.n !== undefined);
    return true;
  }

  /** The items as VS Code draws them; undefined if none fits here. */
  private shown(
    document: vscode.TextDocument,
    position: vscode.Position,
    selected: vscode.SelectedCompletionInfo | undefined,
  ): vscode.InlineCompletionItem[] | undefined {
    const followed = this.fitting(document, position, selected).filter(goesOn);
    const first = followed[0];
    if (first === undefined) {
      this.drop();
      return undefined;
    }
    this.feedback.offer(first.item.id);
    clearTimeout(this.seen);
    this.seen = setTimeout(() => this.feedback.shown(first.item.id), SEEN_MS);
    return followed.map((each) => itemOf(each, position, selected));
  }

  /** Report progress along an item after a change of the text: typed, or accepted in part. */
  private changed({ document, contentChanges }: vscode.TextDocumentChangeEvent): void {
    const change = contentChanges[0];
    if (this.offer?.place.document !== document.uri.toString() || change === undefined) {
      return;
    }
    const end = document.positionAt(change.rangeOffset + change.text.length);
    const followed = this.fitting(document, end);
    const isTyped = [...change.text].length <= 1 || /^\r?\n[ \t]*$/.test(change.text);
    this.feedback.along(followed.map(({ item }) => item.id));
    for (const each of followed) {
      // If a command has inserted all of it, `accepted` comes next.
      this.feedback.took(each.item.id, codePoints(each), !isTyped && goesOn(each));
    }
  }

  /** Drop the items if the cursor has left their place. */
  private moved(editor: vscode.TextEditor): void {
    if (this.offer !== undefined && this.fitting(editor.document, editor.selection.active).length === 0) {
      this.drop();
    }
  }
}

/** The text around a cursor, as if the selected item of the suggest widget had been accepted. */
function placeOf(
  document: vscode.TextDocument,
  position: vscode.Position,
  selected: vscode.SelectedCompletionInfo | undefined,
  start = firstLine(position.line),
): Place {
  const end = selected?.range.start ?? position;
  const { prefix } = windowAt(linesOf(document), end.line, end.character, start);
  const { suffix } = windowAt(linesOf(document), position.line, position.character, start);
  return { document: document.uri.toString(), start, prefix: prefix + (selected?.text ?? ""), suffix };
}

function itemOf(
  followed: Followed,
  position: vscode.Position,
  selected: vscode.SelectedCompletionInfo | undefined,
): vscode.InlineCompletionItem {
  const command = { command: ACCEPTED, title: "Accepted", arguments: [followed.item.id] };
  if (selected !== undefined) {
    const text = selected.text + followed.item.text.slice(followed.taken);
    return new vscode.InlineCompletionItem(text, selected.range, command);
  }
  const { text, column } = lineOf(followed);
  const range = new vscode.Range(position.translate(0, column), position.translate(0, followed.closers));
  return new vscode.InlineCompletionItem(text, range, command);
}
