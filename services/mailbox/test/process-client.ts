/** A client of one process of mailbox, for tests of single promises: JSON, one call at a time. */
import assert from 'node:assert/strict';
import type { TopicLedger } from '@ron/proto';
import { bytesOf } from '@ron/testkit';
import type { Reply, ServiceProcess, ServiceProcessInit } from '@ron/testkit/service';
import { startProcess } from './process.ts';

/** Calls of one process. */
export class ProcessClient implements AsyncDisposable {
  readonly process: ServiceProcess;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(process: ServiceProcess, headers: Readonly<Record<string, string>>) {
    this.process = process;
    this.#headers = headers;
  }

  send(body: Uint8Array, topic = 'jobs'): Promise<Reply> {
    const type = { 'content-type': 'application/octet-stream' };
    return this.process.send('POST', `/v1/mailbox/${topic}`, { headers: { ...this.#headers, ...type }, body });
  }

  post(path: string, body: object): Promise<Reply> {
    const headers = { ...this.#headers, 'content-type': 'application/json' };
    return this.process.send('POST', `/v1/mailbox/${path}`, { headers, body: JSON.stringify(body) });
  }

  /** Starts a proof. */
  prove(): Promise<Reply> {
    return this.process.send('POST', '/admin/prove', { headers: this.#headers });
  }

  async ledger(topic = 'jobs'): Promise<TopicLedger> {
    return (await this.get(topic)).json.ledger;
  }

  get(path: string): Promise<Reply> {
    return this.process.send('GET', `/v1/mailbox/${path}`, { headers: this.#headers });
  }

  async readyz(): Promise<{ status: number; degraded: readonly string[]; reasons: Record<string, string> }> {
    const { status, json } = await this.process.send('GET', '/readyz');
    const closed = json.gates.filter(({ open }: { open: boolean }) => !open);
    const reasons = closed.map(({ gate, reason }: { gate: string; reason: string }) => [gate, reason]);
    return { status, degraded: json.degraded, reasons: Object.fromEntries(reasons) };
  }

  /** Leases up to 128 messages. */
  async receive(topic = 'jobs', request: object = {}): Promise<ReceivedJson[]> {
    const { status, json, text } = await this.post(`${topic}/receive`, { max: 128, ...request });
    assert.equal(status, 200, text);
    return json.messages;
  }

  async settle(op: 'ack' | 'nack' | 'extend', messages: readonly { readonly token: string }[], how: object = {}) {
    const tokens = messages.map(({ token }) => token);
    const { status, json, text } = await this.post(`jobs/${op}`, { tokens, ...how });
    assert.equal(status, 200, text);
    return json.results as string[];
  }

  /** Fills the disk; returns the sequence numbers of the stored messages and the refusal. */
  async fill(bytes: number): Promise<{ seqs: number[]; refusal: Reply }> {
    const seqs: number[] = [];
    for (;;) {
      const reply = await this.send(bytesOf(bytes, seqs.length + 1));
      if (reply.status !== 201) return { seqs, refusal: reply };
      seqs.push(reply.json.seq);
    }
  }

  /** Receives and acks everything that is visible; returns the sequence numbers. */
  async empty(): Promise<number[]> {
    const seqs: number[] = [];
    for (;;) {
      const messages = await this.receive();
      if (messages.length === 0) return seqs;
      assert.deepEqual(new Set(await this.settle('ack', messages)), new Set(['ok']));
      seqs.push(...messages.map(({ seq }) => seq));
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.process.kill();
  }
}

export interface ReceivedJson {
  readonly seq: number;
  readonly id: string;
  readonly token: string;
  readonly delivery: number;
  readonly attempts: number;
  /** Base64. */
  readonly payload: string;
}

/** Starts mailbox with its data and keys in `dir`. */
export async function startClient(dir: string, init: Partial<ServiceProcessInit> = {}): Promise<ProcessClient> {
  const { process, headers } = await startProcess(dir, init);
  return new ProcessClient(process, headers);
}
