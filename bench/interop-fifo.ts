/**
 * The comparison of the overload benchmark: `node bench/interop-fifo.ts DIR SOCKET WORKERS`. Reads and writes wait in one FIFO of
 * 512 for one of the workers, which forward them to storage; a full queue answers 429. No deadline ends a wait. Prints its port.
 */
import { Agent, createServer, request as send, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { blake3 } from '@napi-rs/blake-hash';

const QUEUE_MAX = 512;

interface Job {
  readonly method: string;
  readonly path: string;
  readonly body: Buffer;
  readonly response: ServerResponse;
}

const [, socketPath, workers] = process.argv.slice(2);
const agent = new Agent({ keepAlive: true, maxSockets: Number(workers) });
const queue: Job[] = [];
let busy = 0;

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

function forward({ method, path, body, response }: Job): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const headers = { 'Content-Length': body.length };
  const out = send({ socketPath: socketPath!, agent, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode!, { 'Content-Length': answer.headers['content-length'] });
    answer.pipe(response, { end: true });
    answer.on('end', resolve);
    answer.on('error', reject);
  });
  out.on('error', reject);
  out.end(body);
  return promise;
}

function work(): void {
  if (busy >= Number(workers)) return;
  const job = queue.shift();
  if (job === undefined) return;
  busy += 1;
  forward(job)
    .catch(() => job.response.destroy())
    .finally(() => {
      busy -= 1;
      work();
    });
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await bodyOf(request);
  if (queue.length >= QUEUE_MAX) {
    response.writeHead(429, { 'Content-Length': 0 }).end();
    return;
  }
  const isRead = request.method === 'GET';
  const path = isRead ? request.url! : `/o/b3:${blake3(body).toString('hex')}`;
  queue.push({ method: isRead ? 'GET' : 'PUT', path, body, response });
  work();
}

const server = createServer((request, response) => {
  handle(request, response).catch(() => response.destroy());
});
server.listen(0, '127.0.0.1', () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`));
