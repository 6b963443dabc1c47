/** Completions as VS Code asks for them. */

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

/** Run by VS Code once all of an item is in the text; no command of people's. */
export const ACCEPTED = "localspec.accepted";
/** Every provider of this extension; what a command names is asked, whatever is shown already. */
const PROVIDER = "localspec.localspec:*";
const CYCLED = 3;
/** What stands on the screen for so long has been shown. */
const SEEN_MS = 100;

/** What is asked: as the daemon gets it, and where. */
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
  /** Whose the next question is, if it is one that this extension has VS Code put. */
  private own: Trigger | undefined;
  /** Where the daemon was asked last. */
  asked: { readonly document: string; readonly line: number } | undefined;

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
    // VS Code asks once for all that can be cycled through.
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

  /** Ask for more than comes by itself, at the cursor. */
  async trigger(): Promise<void> {
    this.drop();
    // VS Code does not put a question again to a provider that has answered it.
    this.registration.dispose();
    this.registration = this.register();
    await this.putQuestion("invoked");
  }

  /** All of an item was accepted: what comes after it is known to the daemon already. */
  async accepted(item: string): Promise<void> {
    this.feedback.accepted(item);
    this.drop();
    await this.putQuestion("automatic");
  }

  /** Nothing that is known is shown any more. */
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

  /** Have VS Code ask. Older ones take it for a person's wish to go through all there is. */
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

  /** What is offered and fits here, all of it or what is left; an item of the suggest widget counts as typed. */
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
    this.asked = { document: place.document, line: position.line };
    return { place, params, known: how.followed.map(rest) };
  }

  /** What a prompt is made of. */
  context(document: vscode.TextDocument, window: Pick<Window, "prefix" | "suffix">) {
    return {
      path: pathOf(document.uri),
      language: document.languageId,
      prefix: sentPrefix(window.prefix),
      suffix: sentSuffix(window.suffix),
      extra: this.visits.files(document),
    };
  }

  /** Have the daemon's answer offered; whether there is one, and the text is still the one that was asked about. */
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
      () => this.link.ask<Completions>("completion/inline", params, token, isEager),
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

  /** The items as VS Code draws them, if any is left here. */
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

  /** Somebody has typed, or accepted a part: that shows in the text alone. */
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
      // Once all of it is there by a command, `accepted` comes next.
      this.feedback.took(each.item.id, codePoints(each), !isTyped && goesOn(each));
    }
  }

  /** The cursor is elsewhere than where something is offered. */
  private moved(editor: vscode.TextEditor): void {
    if (this.offer !== undefined && this.fitting(editor.document, editor.selection.active).length === 0) {
      this.drop();
    }
  }
}

/** The text around a cursor, as if what is selected in the suggest widget had been accepted. */
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
