/** JSON-RPC 2.0 without a socket: frames go out through a callback and come in by `receive`. */

export interface ErrorData {
  readonly code: string;
  readonly message: string;
  readonly remedy: string;
}

/** The error of a request, with the daemon's code, or `protocol` for a JSON-RPC error without one. */
export class RpcError extends Error {
  constructor(readonly data: ErrorData) {
    super(data.message);
  }

  get code(): string {
    return this.data.code;
  }

  /** The message and its remedy. */
  get advice(): string {
    return [this.data.message, this.data.remedy].filter((part) => part !== "").join(" ");
  }
}

export interface Request<T> {
  readonly id: number;
  readonly result: Promise<T>;
  /** Have the daemon end it; the result still settles. */
  cancel(): void;
}

interface Waiting {
  resolve(result: unknown): void;
  reject(error: RpcError): void;
}

interface Frame {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly message?: unknown; readonly data?: Partial<ErrorData> };
}

type Handler = (params: Record<string, unknown>) => void;

export class Rpc {
  private readonly waiting = new Map<number, Waiting>();
  private readonly handlers = new Map<string, Handler>();
  private lastId = 0;
  private ended: RpcError | undefined;

  constructor(private readonly send: (frame: string) => void) {}

  /** True if any request waits for its response. */
  get busy(): boolean {
    return this.waiting.size > 0;
  }

  /** Set the handler of a kind of notification. */
  on(method: string, handler: Handler): void {
    this.handlers.set(method, handler);
  }

  request<T>(method: string, params?: object): Request<T> {
    const id = ++this.lastId;
    const result = new Promise<T>((resolve, reject) => {
      if (this.ended !== undefined) {
        reject(this.ended);
        return;
      }
      this.waiting.set(id, { resolve: resolve as (result: unknown) => void, reject });
      this.write({ id, method, params });
    });
    return { id, result, cancel: () => this.cancel(id) };
  }

  notify(method: string, params?: object): void {
    if (this.ended === undefined) {
      this.write({ method, params });
    }
  }

  /** Handle a frame of the daemon; an invalid one is ignored. */
  receive(text: string): void {
    const frame = parsed(text);
    if (frame === undefined) {
      return;
    }
    if (typeof frame.method === "string") {
      this.handlers.get(frame.method)?.((frame.params ?? {}) as Record<string, unknown>);
    } else if (typeof frame.id === "number") {
      this.settle(frame.id, frame);
    }
  }

  /** End the connection: waiting and later requests fail with `error`. */
  end(error: RpcError): void {
    this.ended ??= error;
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    waiting.forEach((each) => each.reject(error));
  }

  private settle(id: number, frame: Frame): void {
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (frame.error === undefined) {
      waiting?.resolve(frame.result);
    } else {
      waiting?.reject(errorOf(frame.error));
    }
  }

  private cancel(id: number): void {
    if (this.waiting.has(id)) {
      this.notify("$/cancelRequest", { id });
    }
  }

  private write(frame: object): void {
    this.send(JSON.stringify({ jsonrpc: "2.0", ...frame }));
  }
}

function parsed(text: string): Frame | undefined {
  try {
    const frame: unknown = JSON.parse(text);
    return typeof frame === "object" && frame !== null && !Array.isArray(frame) ? frame : undefined;
  } catch {
    return undefined;
  }
}

function errorOf(error: NonNullable<Frame["error"]>): RpcError {
  const { code = "protocol", message = String(error.message ?? ""), remedy = "" } = error.data ?? {};
  return new RpcError({ code, message, remedy });
}
