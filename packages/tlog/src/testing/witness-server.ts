/** A witness over plain HTTP for tests: a real `Cosigner`, and responses that a test may replace. */
import { hash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from '@ron/kernel/http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NEVER } from '@ron/kernel';
import { encodeCheckpoint, type Checkpoint } from '../note/checkpoint.ts';
import { Cosigner, type CosignerAnswer } from '../witness/cosigner.ts';

export interface WitnessServer extends AsyncDisposable {
  readonly url: string;
  readonly vkey: string;
  /** The last checkpoint that it cosigned. */
  latest(): Promise<Checkpoint | undefined>;
  /** Simulates a submission by another client. */
  setLatest(checkpoint: Checkpoint): Promise<void>;
  /** The status of every response. */
  readonly answers: number[];
  /** A response that replaces its own. */
  override: { status: number; text: string } | undefined;
}

export async function startWitness(origin: string, logs: readonly string[]): Promise<WitnessServer> {
  const dir = await mkdtemp(join(tmpdir(), 'ron-witness-'));
  const cosigner = await Cosigner.open({ dir, logs, name: 'witness.example/w1' });
  const server = createServer((request, response) => void serve(request, response));
  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    const isCall = request.method === 'POST' && request.url === '/add-checkpoint';
    const none = { status: 404, media_type: 'text/plain', text: '' } satisfies CosignerAnswer;
    const found = isCall ? await cosigner.add(Buffer.concat(pieces).toString('utf8'), NEVER) : none;
    const { status, text } = witness.override ?? found;
    witness.answers.push(status);
    response.writeHead(status, { 'content-type': found.media_type });
    response.end(text);
  };
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const witness: WitnessServer = {
    url: `http://127.0.0.1:${port}`,
    vkey: cosigner.vkey,
    latest: () => cosigner.latest(origin),
    setLatest: (checkpoint) => writeFile(join(dir, 'logs', hash('sha256', origin)), encodeCheckpoint(checkpoint)),
    answers: [],
    override: undefined,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => void server.close(() => resolve()));
      await cosigner.close();
      await rm(dir, { recursive: true });
    },
  };
  return witness;
}
