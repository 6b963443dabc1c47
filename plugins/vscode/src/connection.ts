/** The only connection to the daemon, made at a request, and again after it was lost. */

import { Backoff } from "./backoff";
import { type Bridge, bridge, restartDaemon } from "./bridge";
import { type ModelProgress, PROTOCOL } from "./protocol";
import { Rpc, RpcError } from "./rpc";

const PATIENCE_MS = 60_000;

/** Code of a request that ended because the connection was lost. */
export const DISCONNECTED = "disconnected";

type Action = "start" | "restart";

/** One attempt to connect; a newer one may have replaced it. */
interface Attempt {
  isCurrent(): boolean;
  lost(): void;
}

export interface Watcher {
  connecting(): void;
  connected(): void;
  disconnected(): void;
  progress(progress: ModelProgress): void;
}

export class Connection {
  private readonly backoff = new Backoff();
  private bridge: Bridge | undefined;
  private opening: Promise<Rpc> | undefined;
  private lastError: RpcError | undefined;
  private isOver = false;

  constructor(
    private readonly command: () => string,
    private readonly version: string,
    private readonly watcher: Watcher,
  ) {}

  /** An initialized connection. During the pause after a failure, only an `eager` caller makes a new attempt. */
  rpc(eager: boolean): Promise<Rpc> {
    if (this.isOver) {
      return Promise.reject(gone("The extension has ended."));
    }
    if (this.opening === undefined) {
      if (!eager && this.lastError !== undefined && !this.backoff.ready(Date.now())) {
        return Promise.reject(this.lastError);
      }
      return this.open("start");
    }
    return this.opening;
  }

  /** The connection, or the attempt in progress. */
  get current(): Promise<Rpc> | undefined {
    return this.opening;
  }

  /** Restart the daemon, and connect to it. */
  async restart(): Promise<void> {
    this.close();
    await this.open("restart");
  }

  /** End the pause after failures. */
  forgive(): void {
    this.backoff.reset();
  }

  /** Close the connection for good; waiting requests fail and are not repeated. */
  dispose(): void {
    this.isOver = true;
    this.close();
  }

  private close(): void {
    this.bridge?.close();
    this.bridge = undefined;
    this.opening = undefined;
  }

  private open(action: Action): Promise<Rpc> {
    const attempt: Attempt = {
      isCurrent: () => this.opening === opening,
      lost: () => this.lost(opening),
    };
    const opening: Promise<Rpc> = this.connect(action, attempt).then(
      (rpc) => {
        this.backoff.reset();
        this.lastError = undefined;
        this.watcher.connected();
        return rpc;
      },
      (error: unknown) => {
        this.backoff.failed(Date.now());
        this.lastError = asRpcError(error);
        attempt.lost();
        throw this.lastError;
      },
    );
    this.opening = opening;
    this.watcher.connecting();
    return opening;
  }

  private lost(opening: Promise<Rpc>): void {
    if (this.opening === opening) {
      this.opening = undefined;
      this.watcher.disconnected();
    }
  }

  private async connect(action: Action, attempt: Attempt): Promise<Rpc> {
    if (action === "restart") {
      await restartDaemon(this.command());
    }
    let initialized = false;
    const rpc: Rpc = new Rpc((message) => own.send(message));
    rpc.on("model/progress", (params) => this.watcher.progress(params as unknown as ModelProgress));
    const ended = (error: RpcError): void => {
      rpc.end(initialized ? gone("The connection to the daemon was lost.") : error);
      attempt.lost();
    };
    const own = await bridge(this.command(), (message) => rpc.receive(message), ended);
    if (!attempt.isCurrent()) {
      own.close();
      throw gone("This attempt to connect was replaced by a newer one.");
    }
    this.bridge = own;
    const late = setTimeout(() => rpc.end(silent()), PATIENCE_MS);
    try {
      const client = { name: "vscode", version: this.version };
      await rpc.request("initialize", { protocol: PROTOCOL, client }).result;
      initialized = true;
    } catch (error) {
      own.close();
      throw error;
    } finally {
      clearTimeout(late);
    }
    return rpc;
  }
}

function gone(message: string): RpcError {
  return new RpcError({ code: DISCONNECTED, message, remedy: "The next keystroke connects again." });
}

function silent(): RpcError {
  return new RpcError({
    code: "unreachable",
    message: `The daemon has not answered for ${PATIENCE_MS / 1000} s.`,
    remedy: "Run “localspec: Restart Daemon”.",
  });
}

export function asRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) {
    return error;
  }
  const message = error instanceof Error ? error.message : String(error);
  return new RpcError({ code: "internal", message, remedy: "See the log: “localspec: Show Statistics”, Show Log." });
}
