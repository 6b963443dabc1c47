/** Pauses before a new attempt after failures. */

const WAITS_S = [0, 1, 2, 5, 10, 30];

export class Backoff {
  private failures = 0;
  private next = 0;

  /** Return true if the pause is over at `now`, in milliseconds. */
  ready(now: number): boolean {
    return now >= this.next;
  }

  failed(now: number): void {
    const wait = WAITS_S[Math.min(this.failures, WAITS_S.length - 1)] ?? 0;
    this.failures += 1;
    this.next = now + wait * 1000;
  }

  reset(): void {
    this.failures = 0;
    this.next = 0;
  }
}
