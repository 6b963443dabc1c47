/** The proof over TCP that both sides know the token, which is never sent (localspec/protocol/handshake.py). */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

import { SUBPROTOCOL } from "./protocol";
import { type Rpc, RpcError } from "./rpc";

const CHALLENGE = "$/challenge";
const LONGEST_UNPROVED = 4096;
const DIGITS = /^[0-9a-f]{64}$/;

type Side = "daemon" | "client";

export function newNonce(): string {
  return randomBytes(32).toString("hex");
}

/** The subprotocols of a client with this nonce. */
export function offered(nonce: string): string[] {
  return [SUBPROTOCOL, `localspec.nonce.${nonce}`];
}

/** Return the proof of `side` that it has the token: an HMAC-SHA256 as 64 hex digits. */
export function proof(token: string, side: Side, port: number, clientNonce: string, daemonNonce: string): string {
  const message = `${SUBPROTOCOL} ${side} ${port} ${clientNonce} ${daemonNonce}`;
  return createHmac("sha256", token).update(message).digest("hex");
}

/** Wait for the daemon's proof on a new connection, check it, and answer it; nothing else is sent before. */
export function authenticated(rpc: Rpc, url: string, token: string, nonce: string): Promise<void> {
  return new Promise((resolve, reject) => {
    rpc.onEnd(reject);
    rpc.distrust({ method: CHALLENGE, longest: LONGEST_UNPROVED, error: unproved() });
    rpc.on(CHALLENGE, (challenge) => {
      try {
        rpc.notify("$/authenticate", { proof: answer(challenge, Number(new URL(url).port), token, nonce) });
        rpc.trust();
        resolve();
      } catch (error) {
        reject(error);
      }
    });
  });
}

/** The client's proof; throws if the challenge proves no knowledge of the token, or is of another port. */
function answer(challenge: Record<string, unknown>, port: number, token: string, nonce: string): string {
  const { nonce: challenged, proof: given, port: theirPort } = challenge;
  if (typeof challenged === "string" && typeof given === "string" && theirPort === port && DIGITS.test(challenged) && DIGITS.test(given)) {
    const expected = proof(token, "daemon", port, nonce, challenged);
    if (timingSafeEqual(Buffer.from(given), Buffer.from(expected))) {
      return proof(token, "client", port, nonce, challenged);
    }
  }
  throw unproved();
}

function unproved(): RpcError {
  return new RpcError({
    code: "unreachable",
    message: "The program at the daemon's address is not your daemon: its proof of the token is wrong. Nothing was sent to it.",
    remedy: "Run “localspec: Restart Daemon”.",
  });
}
