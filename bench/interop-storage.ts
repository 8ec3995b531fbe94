/**
 * A slow storage for the overload benchmark: `node bench/interop-storage.ts SOCKET PUT_SLOTS PUT_MS`. A write holds one of
 * the slots for a fixed time; further writes wait in order. Reads have slots of their own and take 5 ms. Prints a line when it listens.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const READ_MS = 5;
const READ_SLOTS = 64;
const READ_BODY = Buffer.alloc(4096, 'r');

class Slots {
  #free: number;
  readonly #service_ms: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number, service_ms: number) {
    this.#free = count;
    this.#service_ms = service_ms;
  }

  async serve(): Promise<void> {
    if (this.#free > 0) this.#free -= 1;
    // oxlint-disable-next-line ron/no-unbounded-queue -- bounded by the connections of the server under test
    else await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    await sleep(this.#service_ms);
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

const [socket, slots, service_ms] = process.argv.slice(2);
const writes = new Slots(Number(slots), Number(service_ms));
const reads = new Slots(READ_SLOTS, READ_MS);

async function sizeOf(request: IncomingMessage): Promise<number> {
  let size = 0;
  for await (const piece of request) size += (piece as Buffer).length;
  return size;
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method, url = '' } = request;
  if (method === 'GET') {
    await reads.serve();
    response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': READ_BODY.length });
    response.end(READ_BODY);
    return;
  }
  const size = await sizeOf(request);
  await writes.serve();
  const durability = { fsynced: true, copies: 1, target: 1 };
  const receipt = JSON.stringify({ address: url.slice('/o/'.length), size, durability });
  response.writeHead(201, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(receipt) });
  response.end(receipt);
}

const server = createServer((request, response) => {
  handle(request, response).catch(() => response.destroy());
});
server.listen(socket, () => process.stdout.write('0\n'));
