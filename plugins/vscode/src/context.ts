/** The excerpts that are sent with a request: a window around the cursor, and pieces of other files. */

import type { File } from "./protocol";

const LINES_BEFORE = 256;
const LINES_AFTER = 65;
/** The window's start moves in steps of so many lines: most keystrokes leave it in place. */
const BLOCK = 64;
const BLOCKS = 16;
const BLOCKS_OF_ONE = 2;
const LONGEST_PREFIX = 256 * 1024;
const LONGEST_SUFFIX = 64 * 1024;
const LONGEST_BLOCK = 32 * 1024;
/** Largest file in UTF-16 units; nothing of larger ones is sent. */
export const LARGEST_FILE = 1024 * 1024;

/** A text by its lines, columns in UTF-16 units. */
export interface Lines {
  readonly count: number;
  between(line: number, column: number, endLine: number, endColumn: number): string;
}

/** The text around a cursor, from the beginning of line `start`. */
export interface Window {
  readonly start: number;
  readonly prefix: string;
  readonly suffix: string;
}

export function firstLine(line: number): number {
  return Math.floor(Math.max(0, line - LINES_BEFORE) / BLOCK) * BLOCK;
}

export function windowAt(lines: Lines, line: number, column: number, start = firstLine(line)): Window {
  return {
    start,
    prefix: lines.between(start, 0, line, column),
    suffix: lines.between(line, column, line + LINES_AFTER, 0),
  };
}

/** The end of a prefix, as much as is sent, in whole characters. */
export function sentPrefix(prefix: string): string {
  return wellFormed(prefix.length > LONGEST_PREFIX ? prefix.slice(-LONGEST_PREFIX) : prefix);
}

export function sentSuffix(suffix: string): string {
  return wellFormed(suffix.slice(0, LONGEST_SUFFIX));
}

/** `text` with each lone surrogate replaced: the daemon would refuse it. */
function wellFormed(text: string): string {
  return text.toWellFormed();
}

interface Block {
  readonly path: string;
  readonly index: number;
  /** Its text, once its file is closed. */
  kept?: string;
}

/** The visited blocks of files, the newest first. */
export class Ring {
  private blocks: Block[] = [];

  visit(path: string, line: number): void {
    const index = Math.floor(line / BLOCK);
    if (this.blocks[0]?.path === path && this.blocks[0].index === index) {
      return;
    }
    const others = this.blocks.filter((each) => each.path !== path || each.index !== index);
    let ofThis = 1;
    this.blocks = [{ path, index }, ...others]
      .filter((each, i) => i === 0 || each.path !== path || ++ofThis <= BLOCKS_OF_ONE)
      .slice(0, BLOCKS + BLOCKS_OF_ONE);
  }

  /** Keep the visited blocks of a file that is closed, as they are now. */
  keep(path: string, lines: Lines): void {
    for (const block of this.blocks.filter((each) => each.path === path)) {
      block.kept = blockOf(lines, block.index);
    }
  }

  forget(path: string): void {
    this.blocks = this.blocks.filter((each) => each.path !== path);
  }

  clear(): void {
    this.blocks = [];
  }

  /** The pieces of all files but one; `open` returns a file's lines while it is open. */
  files(except: string, open: (path: string) => Lines | undefined): File[] {
    return this.blocks
      .filter((each) => each.path !== except)
      .slice(0, BLOCKS)
      .map(({ path, index, kept }) => {
        const lines = open(path);
        return { path, text: lines === undefined ? (kept ?? "") : blockOf(lines, index) };
      })
      .filter((file) => file.text.trim() !== "");
  }
}

function blockOf(lines: Lines, index: number): string {
  return wellFormed(lines.between(BLOCK * index, 0, BLOCK * (index + 1), 0).slice(0, LONGEST_BLOCK));
}
