/**
 * One HTTP request and its whole answer.
 *
 * Contract: every refusal is searched for secrets at the end of the test file (`@ron/auth/testing`). A request rejects
 * when the connection breaks before the answer is complete. A complete answer counts even if sending the body failed.
 */
import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { request, type Agent, type IncomingHttpHeaders } from '@ron/kernel/http';
import { leaks } from '@ron/auth/testing';

/** Any JSON value; the test knows its shape. */
export type Json = ReturnType<typeof JSON.parse>;

export interface Problem {
  readonly code: string;
  readonly status: number;
  readonly detail: string;
  readonly corr_id: string;
  readonly retryable: boolean;
}

export interface Reply {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly text: string;
  /** The body as JSON; undefined if it is not JSON. */
  readonly json: Json;
  /** The body of a refusal; undefined for other answers. */
  readonly problem: Problem | undefined;
}

export interface SendInit {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  /** Default: a connection for this request only. */
  readonly agent?: Agent;
  readonly signal?: AbortSignal;
}

export function send(url: string, method: string, path: string, init: SendInit = {}): Promise<Reply> {
  const { hostname, port } = new URL(url);
  const { headers, agent = false, signal } = init;
  return new Promise((resolve, reject) => {
    const options = { hostname, port, method, path, headers: { ...headers }, agent, ...(signal && { signal }) };
    const req = request(options, (res) => {
      const chunks: Buffer[] = [];
      res.on('data', (chunk: Buffer) => chunks.push(chunk));
      res.on('error', reject);
      res.on('end', () => resolve(replyOf(res.statusCode!, res.headers, Buffer.concat(chunks))));
    });
    // A refusal may arrive while the body is still being sent. `close` follows the end of the answer.
    req.on('error', (error) => req.once('close', () => reject(error)));
    req.end(init.body);
  });
}

export function replyOf(status: number, headers: IncomingHttpHeaders, body: Buffer): Reply {
  const isProblem = headers['content-type'] === 'application/problem+json' && body.length > 0;
  if (status >= 400) leaks.shown('a refusal', body.toString());
  return {
    status,
    headers,
    body,
    // On demand: an object of some MiB takes longer to decode than to receive.
    get text() {
      return textOf(body);
    },
    get json() {
      return parsed(body.toString());
    },
    problem: isProblem ? JSON.parse(body.toString()) : undefined,
  };
}

/** As Latin-1 if it is not UTF-8: messages of assertions quote objects of some MiB, and replacement characters are slow. */
const textOf = (body: Buffer): string => body.toString(isUtf8(body) ? 'utf8' : 'latin1');

function parsed(text: string): Json {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Asserts the status, the error code, and the properties that every refusal has. */
export function assertRefusal(reply: Reply, status: number, code: string): void {
  assert.equal(reply.status, status, reply.text);
  assert.equal(reply.headers['content-type'], 'application/problem+json');
  assert.equal(reply.problem?.code, code, reply.text);
  assert.equal(reply.problem?.status, status);
  assert.equal(reply.problem?.corr_id, reply.headers['x-corr-id']);
  const isTemporary = status === 429 || status === 503;
  assert.equal(reply.headers['retry-after'] !== undefined, isTemporary, 'Retry-After exactly on 429 and 503');
}
