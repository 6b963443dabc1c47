/** The daemon as the rest of the extension asks it: errors are told, the status is kept. */

import * as vscode from "vscode";

import { asRpcError, Connection, DISCONNECTED } from "./connection";
import type { Notices } from "./notices";
import { RpcError } from "./rpc";
import { Settings } from "./settings";
import type { Status } from "./status";

/** Why a request was not even sent. */
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

  /** The answer to a request. A daemon that ended meanwhile is asked anew once. */
  async ask<T>(method: string, params: object | undefined, token: vscode.CancellationToken, eager = false): Promise<T> {
    try {
      return await this.once<T>(method, params, token, eager);
    } catch (error) {
      if (asRpcError(error).code !== DISCONNECTED || token.isCancellationRequested) {
        throw error;
      }
      return await this.once<T>(method, params, token, eager);
    }
  }

  /** Ask, and tell what goes wrong: then undefined, as if nobody waits any more. */
  async tryTo<T>(work: () => Promise<T>, asked: boolean): Promise<T | undefined> {
    try {
      return await work();
    } catch (thrown) {
      const error = asRpcError(thrown);
      if (error.code !== CANCELLED) {
        this.failed(error, asked);
      }
      return undefined;
    }
  }

  /** Say something nobody waits for, while there is a connection. */
  async mention(method: string, params: object): Promise<void> {
    try {
      const rpc = await this.connection.current;
      await rpc?.request(method, params).result;
    } catch (error) {
      this.log.debug(`${method}: ${asRpcError(error).code}`);
    }
  }

  /** Be there before the first keystroke. */
  async connect(): Promise<void> {
    await this.tryTo(() => this.connection.rpc(false), false);
  }

  async restart(): Promise<boolean> {
    this.forgive();
    return (await this.tryTo(() => this.connection.restart().then(() => true), true)) ?? false;
  }

  /** What was wrong may have been mended. */
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
      throw new RpcError({ code: CANCELLED, message: "Nobody waits for it any more.", remedy: "" });
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

  private failed(error: RpcError, asked: boolean): void {
    this.status.set({ kind: "error", advice: error.advice });
    this.notices.tell(error, asked);
  }
}
