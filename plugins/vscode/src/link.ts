/** Requests to the daemon for the rest of the extension, with errors shown and the status updated. */

import * as vscode from "vscode";

import { asRpcError, Connection, DISCONNECTED } from "./connection";
import type { Notices } from "./notices";
import { RpcError } from "./rpc";
import { Settings } from "./settings";
import type { Status } from "./status";

/** Code of a request that was cancelled before it was sent. */
const CANCELLED = "cancelled";

export class Link implements vscode.Disposable {
  private readonly connection: Connection;

  constructor(
    version: string,
    private readonly status: Status,
    private readonly notices: Notices,
    private readonly log: vscode.LogOutputChannel,
  ) {
    this.connection = new Connection(() => new Settings().command, version, {
      connecting: () => this.status.set({ kind: "connecting" }),
      connected: () => {
        this.log.info("connected to the daemon");
        this.status.set({ kind: "idle" });
      },
      disconnected: () => {
        this.log.info("not connected to the daemon");
        this.status.set({ kind: "waiting" });
      },
      progress: (progress) => this.status.progress(progress),
    });
  }

  /** The answer to a request, which is repeated once if the connection is lost meanwhile. */
  async request<T>(method: string, params: object | undefined, token: vscode.CancellationToken, eager = false): Promise<T> {
    try {
      return await this.once<T>(method, params, token, eager);
    } catch (error) {
      if (asRpcError(error).code !== DISCONNECTED || token.isCancellationRequested) {
        throw error;
      }
      return await this.once<T>(method, params, token, eager);
    }
  }

  /** Return the result of `work`, or undefined after an error, which is shown; `byUser`: at the user's request. */
  async tryTo<T>(work: () => Promise<T>, byUser: boolean): Promise<T | undefined> {
    try {
      return await work();
    } catch (thrown) {
      const error = asRpcError(thrown);
      if (error.code !== CANCELLED) {
        this.failed(error, byUser);
      }
      return undefined;
    }
  }

  /** Send a request whose answer is ignored, if there is a connection. */
  async mention(method: string, params: object): Promise<void> {
    try {
      const rpc = await this.connection.current;
      await rpc?.request(method, params).result;
    } catch (error) {
      this.log.debug(`${method}: ${asRpcError(error).code}`);
    }
  }

  /** Connect before the first keystroke. */
  async connect(): Promise<void> {
    await this.tryTo(() => this.connection.rpc(false), false);
  }

  async restart(): Promise<boolean> {
    this.forgive();
    return (await this.tryTo(() => this.connection.restart().then(() => true), true)) ?? false;
  }

  /** End the pause after failures, and show errors again. */
  forgive(): void {
    this.notices.reset();
    this.connection.forgive();
  }

  dispose(): void {
    this.connection.dispose();
  }

  private async once<T>(method: string, params: object | undefined, token: vscode.CancellationToken, eager: boolean): Promise<T> {
    const rpc = await this.connection.rpc(eager);
    if (token.isCancellationRequested) {
      throw new RpcError({ code: CANCELLED, message: "The request was cancelled.", remedy: "" });
    }
    const request = rpc.request<T>(method, params);
    const listener = token.onCancellationRequested(() => request.cancel());
    try {
      const result = await this.status.during(request.result);
      this.status.set({ kind: "idle" });
      return result;
    } finally {
      listener.dispose();
    }
  }

  private failed(error: RpcError, byUser: boolean): void {
    this.status.set({ kind: "error", advice: error.advice });
    this.notices.error(error, byUser);
  }
}
